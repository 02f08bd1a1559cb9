"""Atomic replacement of files."""

from __future__ import annotations

import os


def write_whole(path: str, data: bytes, *, mode: int = 0o600, durable: bool = False) -> None:
    """Replace a file, so that readers find the old content or the new.

    With `durable` the new content survives a power cut as soon as this returns.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open(f"{path}.new", flags, mode), "wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
