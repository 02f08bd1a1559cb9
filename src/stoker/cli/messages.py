"""Lines for people on standard error, and JSON for programs on standard output."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def note(text: str) -> None:
    """Write a line to standard error, below all that was printed before it."""
    sys.stdout.flush()
    sys.stderr.write(f"stoker: {text}\n")


def harmless(text: str) -> str:
    """Replace control characters: text from outside must not control the terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes, without buffering."""
    import os

    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def print_json(value: Any, *, indent: int | None = 2, ensure_ascii: bool = True) -> None:
    """Print a value, structs included, as JSON."""
    import json

    import msgspec

    print(json.dumps(msgspec.to_builtins(value), indent=indent, ensure_ascii=ensure_ascii))
