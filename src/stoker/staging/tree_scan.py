"""Reading of a folder into a manifest."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterator

from stoker.staging.manifest import FILE, FOLDER, LINK, ManifestEntry, StagingError, TreeManifest

_CHUNK_BYTES = 1 << 20
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

Complain = Callable[[bytes, str], None]


def scan(folder: str | bytes) -> TreeManifest:
    """Return the manifest of a folder; raise StagingError if a file cannot be read or changes meanwhile."""
    top = os.fsencode(folder)

    def complain(path: bytes, reason: str) -> None:
        raise StagingError(f"cannot ship {os.fsdecode(os.path.join(top, path))}: {reason}")

    return TreeManifest(read_entries(top, complain))


def read_entries(top: bytes, complain: Complain) -> Iterator[ManifestEntry]:
    """Yield the entries of a folder. Files that cannot be read are reported to `complain` and left out."""
    for entry in list_entries(top, complain):
        found = read_entry(top, entry, complain)
        if found is not None:
            yield found


def list_entries(top: bytes, complain: Complain, below: bytes = b"") -> Iterator[ManifestEntry]:
    """Yield the entries of a folder without reading files: they have no digests yet.

    Folders that cannot be read are reported to `complain`; sockets, pipes and devices are ignored.
    """
    try:
        with os.scandir(os.path.join(top, below)) as found:
            entries = list(found)
    except OSError as error:
        complain(below, error.strerror or str(error))
        return
    for entry in entries:
        path = os.path.join(below, entry.name)
        try:
            status = entry.stat(follow_symlinks=False)
            mode = stat.S_IMODE(status.st_mode) & 0o777
            if stat.S_ISDIR(status.st_mode):
                yield ManifestEntry(path, FOLDER, mode)
                yield from list_entries(top, complain, path)
            elif stat.S_ISLNK(status.st_mode):
                yield ManifestEntry(path, LINK, target=os.readlink(entry.path))
            elif stat.S_ISREG(status.st_mode):
                yield ManifestEntry(path, FILE, mode, status.st_size)
        except FileNotFoundError:
            continue  # removed meanwhile
        except OSError as error:
            complain(path, error.strerror or str(error))


def read_entry(top: bytes, entry: ManifestEntry, complain: Complain) -> ManifestEntry | None:
    """Add the digest to a listed entry; None if the file is gone or cannot be read."""
    if entry.kind != FILE:
        return entry
    try:
        return _read_file(top, entry.path)
    except FileNotFoundError:
        return None
    except OSError as error:
        complain(entry.path, error.strerror or str(error))
        return None


def _read_file(top: bytes, path: bytes) -> ManifestEntry:
    fd = os.open(os.path.join(top, path), _READ)
    try:
        before = os.fstat(fd)
        digest, size = hash_open(fd, before.st_size)
        after = os.fstat(fd)
    finally:
        os.close(fd)
    if (size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise OSError("it changes while it is read")
    return ManifestEntry(path, FILE, stat.S_IMODE(after.st_mode) & 0o777, size, digest)


def hash_open(fd: int, most: int = sys.maxsize) -> tuple[str, int]:
    """Return the digest and the length of the rest of an open file.

    At most `most` bytes are read: a log may grow as fast as it is read.
    """
    digest, size = hashlib.sha256(), 0
    while data := os.read(fd, min(_CHUNK_BYTES, most - size)):
        digest.update(data)
        size += len(data)
    return digest.hexdigest(), size
