"""GPUPeasy's batch text: `NAME;;OUTFILE;;COMMAND;;;` for each job, on as many lines as one likes."""

from __future__ import annotations

import os
from typing import NamedTuple


class BatchJob(NamedTuple):
    """One job of a batch."""

    name: bytes
    outfile: bytes  # absolute
    command: bytes


def parse_batch(text: bytes, cwd: bytes) -> tuple[list[BatchJob], list[str]]:
    """The jobs of a batch, and what is wrong with it; where anything is, none should be added."""
    for newline in (b"\\\r\n", b"\\\n", b"\r", b"\n"):
        text = text.replace(newline, b" ")
    pieces = [piece.strip() for piece in text.split(b";;;") if piece.strip()]
    if not pieces:
        return [], ["no jobs were submitted (or incorrect syntax): write NAME;;OUTFILE;;COMMAND;;;"]
    jobs: list[BatchJob] = []
    errors: list[str] = []
    taken: set[bytes] = set()
    for number, piece in enumerate(pieces, start=1):
        fields = [field.strip() for field in piece.split(b";;")]
        error = _fault(piece, fields)
        if error is None:
            name, outfile, command = fields
            outfile = os.path.join(cwd, outfile)
            error = fault_of_file(outfile, taken)
            taken.add(outfile)
            jobs.append(BatchJob(name, outfile, command))
        if error is not None:
            errors.append(f"job {number}: {error}")
    return jobs, errors


def _fault(piece: bytes, fields: list[bytes]) -> str | None:
    if len(fields) != 3:
        shown = piece.decode(errors="backslashreplace")
        return f"malformed, not NAME;;OUTFILE;;COMMAND: {shown}"
    name, outfile, command = fields
    return fault_of_fields(name, outfile, command)


def fault_of_fields(name: bytes, outfile: bytes, command: bytes) -> str | None:
    """What a job lacks; None if it has everything."""
    if not name:
        return "no job name was provided"
    if not outfile:
        return "output file not specified"
    if not command:
        return "no command was provided"
    return None


def fault_of_file(outfile: bytes, taken: set[bytes]) -> str | None:
    """Why a job's output cannot go to this file, which nobody else may have; None if it can."""
    shown = outfile.decode(errors="backslashreplace")
    if b"\0" in outfile:
        return "could not open output file: its name holds a NUL byte"
    if outfile in taken or os.path.lexists(outfile):
        return f"output file already exists: {shown}"
    try:
        # Nothing but opening it tells whether it can be opened.
        os.close(os.open(outfile, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        os.unlink(outfile)
    except OSError as error:
        return f"could not open output file: {shown} ({error.strerror})"
    return None
