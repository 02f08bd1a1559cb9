"""Parser of GPUPeasy's batch text, `NAME;;OUTFILE;;COMMAND;;;`, with its exact error messages."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

_ENDS_A_LINE = re.compile(rb";;;[ \t\r]*$", re.MULTILINE)
_COMMENT = re.compile(rb"^[ \t]*#.*$", re.MULTILINE)
_SHOWN = 200  # bytes of a malformed job in its message


class BatchJob(NamedTuple):
    """One job of a batch."""

    name: bytes
    outfile: bytes  # absolute
    command: bytes


class FileFault(NamedTuple):
    """Why a job's output cannot go to a file."""

    exists: bool
    path: str
    detail: str = ""

    def __str__(self) -> str:
        """The message of GPUPeasy's server."""
        if self.exists:
            return f"Output file already exists: {self.path}"
        return f"Could not open output file: {self.path}"


def is_batch(text: bytes) -> bool:
    """Whether a text is a batch of GPUPeasy: no line for the shell ends in `;;;` or has `;;` before it."""
    head, end, _rest = text.partition(b";;;")
    if not end:
        return False
    if _COMMENT.search(text) is not None:
        text = _COMMENT.sub(b"", text)
        head, end, _rest = text.partition(b";;;")
    return bool(end) and (b";;" in head or _ENDS_A_LINE.search(text) is not None)


def parse_batch(text: bytes, cwd: bytes) -> tuple[list[BatchJob], list[str]]:
    """The jobs of a batch, and all errors in it; a batch with an error must not be added."""
    for newline in (b"\\\r\n", b"\\\n", b"\r", b"\n"):
        text = text.replace(newline, b" ")
    pieces = [piece.strip() for piece in text.split(b";;;") if piece.strip()]
    if not pieces:
        return [], ["No jobs were submitted (or incorrect syntax): write NAME;;OUTFILE;;COMMAND;;;"]
    jobs: list[BatchJob] = []
    errors: list[str] = []
    taken: set[bytes] = set()
    for number, piece in enumerate(pieces, start=1):
        fields = [field.strip() for field in piece.split(b";;")]
        if len(fields) != 3:
            shown = piece[:_SHOWN].decode(errors="backslashreplace")
            shown += "…" * (len(piece) > _SHOWN)
            errors.append(f"Malformed job: {shown} (write NAME;;OUTFILE;;COMMAND;;;)")
            continue
        name, outfile, command = fields
        outfile = os.path.join(cwd, outfile)
        error = fault_of_fields(*fields) or _message(fault_of_file(outfile, taken))
        if error is None:
            taken.add(outfile)
            jobs.append(BatchJob(name, outfile, command))
        else:
            shown = name.decode(errors="backslashreplace") or f"number {number}"
            errors.append(f"Error in job: {shown}: {error}")
    return jobs, errors


def _message(fault: FileFault | None) -> str | None:
    """The message of GPUPeasy's page about an output file, with the system's reason."""
    if fault is None:
        return None
    if fault.exists:
        return f"Output file already exists or common to multiple jobs: {fault.path}"
    return f"{fault} ({fault.detail})"


def fault_of_fields(name: bytes, outfile: bytes, command: bytes) -> str | None:
    """Which field of a job is empty; None if none is."""
    if not command:
        return "No jobs were submitted"
    if not name:
        return "No job name was provided"
    if not outfile:
        return "Output file not specified"
    return None


def fault_of_file(outfile: bytes, taken: set[bytes]) -> FileFault | None:
    """Why a job's output cannot go to this file, which no other job may have; None if it can."""
    shown = outfile.decode(errors="backslashreplace")
    if b"\0" in outfile:
        return FileFault(exists=False, path=shown, detail="its name holds a NUL byte")
    if outfile in taken or os.path.lexists(outfile):
        return FileFault(exists=True, path=shown)
    try:
        # Only opening the file shows whether it can be opened.
        os.close(os.open(outfile, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        os.unlink(outfile)
    except OSError as error:
        return FileFault(exists=False, path=shown, detail=error.strerror or str(error))
    return None
