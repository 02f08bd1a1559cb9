"""Reads the batches and scripts of `stoker add` from files and pipes."""

from __future__ import annotations

import codecs
import os
import sys
from typing import Any

from stoker.errors import UsageError
from stoker.submit_context import make_absolute, to_wire


def read_whole(path: str, what: str) -> bytes:
    """Read a whole file, or standard input for `-`, without a byte order mark."""
    return _read(path, what).removeprefix(codecs.BOM_UTF8)


def _read(path: str, what: str) -> bytes:
    try:
        if path == "-":
            if sys.stdin is None:
                raise UsageError(f"standard input is closed: pipe {what} in, or name a file")
            if os.isatty(0):
                sys.stderr.write(f"stoker: type {what}; Ctrl-D ends it\n")
            with open(0, "rb", closefd=False) as file:
                return file.read()
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def read_batch(path: str, form: str) -> list[dict[str, Any]]:
    """Read the jobs of a batch; an error in one rejects all."""
    text = read_whole(path, "jobs")
    if path != "-":
        from stoker.cli.command_list import refuse_program

        refuse_program(path, text, "stoker add")
    jobs = _read_gpupeasy(text) if _is_gpupeasy(text, form) else _read_lines(text)
    if not jobs:
        raise UsageError(f"--batch {path}: it has no jobs: write one command a line")
    return jobs


def _is_gpupeasy(text: bytes, form: str) -> bool:
    if form != "auto" or b";;;" not in text:
        return form == "gpupeasy"
    from stoker.engine.gpupeasy_batch import is_batch

    return is_batch(text)


def _read_lines(text: bytes) -> list[dict[str, Any]]:
    from stoker.engine.command_reader import Splitter

    splitter = Splitter(null=False)
    lines = splitter.feed(text) + splitter.close()
    if b"\0" in text:
        for number, line in enumerate(lines, start=1):
            if b"\0" in line:
                raise UsageError(f"job {number} of the batch holds a NUL byte: nothing was added")
    return [{"command": to_wire(line)} for line in lines]


def _read_gpupeasy(text: bytes) -> list[dict[str, Any]]:
    from stoker.engine.gpupeasy_batch import parse_batch

    jobs, errors = parse_batch(text, make_absolute("."))
    if errors:
        for error in errors[:-1]:
            sys.stderr.write(f"stoker: {error}\n")
        many = f"{len(errors)} errors" if len(errors) > 1 else "1 error"
        raise UsageError(f"{errors[-1]}; {many}, nothing was added")
    return [
        {
            "name": job.name.decode("utf-8", "replace"),
            "log": to_wire(job.outfile),
            "command": to_wire(job.command),
        }
        for job in jobs
    ]
