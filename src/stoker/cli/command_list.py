"""Checks a list of commands before it runs: it may be a program."""

from __future__ import annotations

import os
import shlex

from stoker.errors import UsageError

_PROGRAM_ENDINGS = (".py", ".ipynb", ".pyc")


def read_head(fd: int) -> bytes:
    """Read the first bytes of a regular file; none of one that cannot be read, which the run reports."""
    try:
        return os.pread(fd, 2, 0)
    except OSError:
        return b""


def refuse_program(path: str, head: bytes, way: str) -> None:
    """Refuse a file that is a program and no list of commands; `way` is how one command is run."""
    word = shlex.quote(path)
    if path.endswith(_PROGRAM_ENDINGS):
        raise UsageError(
            f"{path} is a program, not a list of commands: {way} python {word}; a list has one command"
            " per line"
        )
    if head.startswith(b"#!"):
        program = word if "/" in path else f"./{word}"
        raise UsageError(
            f"{path} begins with #!, so it is one program, not a list of commands: {way} {program}"
        )
