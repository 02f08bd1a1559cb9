"""Manifest of a tree: all its files, folders and links in one canonical form.

Every TreeManifest object is safe, whatever process wrote its bytes: no path leaves the tree, and no entry
is below a link or a file. Code that writes the tree has nothing left to check.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from stoker.errors import StokerError

FILE, FOLDER, LINK = b"f", b"d", b"l"
MAX_ENTRIES = 250_000
MAX_ENCODED_BYTES = 64 << 20
MAX_PATH_BYTES = 4000
_MAX_NAME_BYTES = 255
_MODES = 0o777
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HEAD = re.compile(rb"([fdl]) ([0-7]{1,3}) ([0-9]{1,19}) ([0-9a-f]{64}|-) ", re.ASCII)


class StagingError(StokerError):
    """Files cannot be transferred to a node or back. `errno` is the system's reason; 0 if it has none."""

    def __init__(self, message: str, errno: int = 0) -> None:
        super().__init__(message)
        self.errno = errno


class ManifestEntry(NamedTuple):
    """A file with the digest of its content, a folder, or a link with its target."""

    path: bytes
    kind: bytes
    mode: int = 0
    size: int = 0
    digest: str = ""
    target: bytes = b""


class TreeManifest:
    """The entries of a tree, sorted by path. Equal trees have equal `id`s, and only they."""

    def __init__(self, entries: Iterable[ManifestEntry]) -> None:
        self.entries = tuple(sorted(entries))
        _check(self.entries)

    @classmethod
    def decode(cls, data: bytes) -> TreeManifest:
        """Decode a manifest; raise StagingError if it is invalid or not in canonical form."""
        if len(data) > MAX_ENCODED_BYTES:
            raise StagingError("a tree's manifest is too long: ship fewer files")
        found = cls(_parse(data))
        if found.encoded != data:
            raise StagingError("a tree's manifest is not in canonical form")
        return found

    @cached_property
    def encoded(self) -> bytes:
        """The manifest as bytes, for transfer."""
        return b"".join(map(_write, self.entries))

    @cached_property
    def id(self) -> str:
        """The digest of the manifest."""
        return hashlib.sha256(self.encoded).hexdigest()

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Size of each content that the tree needs, by digest."""
        return {entry.digest: entry.size for entry in self.entries if entry.kind == FILE}

    @cached_property
    def size_bytes(self) -> int:
        """Total size of all files."""
        return sum(entry.size for entry in self.entries)


def is_digest(text: str) -> bool:
    """Whether a text is a valid digest, and so safe as part of a path."""
    return _DIGEST.fullmatch(text) is not None


def check_path(path: bytes) -> None:
    """Raise StagingError for a path that could leave the folder it is joined to."""
    names = path.split(b"/")
    if len(path) > MAX_PATH_BYTES or any(
        name in (b"", b".", b"..") or b"\0" in name or len(name) > _MAX_NAME_BYTES for name in names
    ):
        raise StagingError(f"{path[:200]!r} is not a path within a tree")


def parents(path: bytes) -> Iterator[bytes]:
    """Yield the folders above a path, from the top."""
    at = path.find(b"/")
    while at >= 0:
        yield path[:at]
        at = path.find(b"/", at + 1)


def _check(entries: tuple[ManifestEntry, ...]) -> None:
    if len(entries) > MAX_ENTRIES:
        raise StagingError(f"a tree of more than {MAX_ENTRIES:,} files cannot be shipped")
    folders = {b""}
    last = b""
    for entry in entries:
        check_path(entry.path)
        if entry.path <= last:
            raise StagingError(f"{entry.path!r} is in a tree twice")
        last = entry.path
        if entry.path.rpartition(b"/")[0] not in folders:
            raise StagingError(f"{entry.path!r} is in no folder of its tree")
        if entry.kind == FOLDER:
            folders.add(entry.path)
        _check_one(entry)


def _check_one(entry: ManifestEntry) -> None:
    path, kind, mode, size, digest, target = entry
    is_file, is_link = kind == FILE, kind == LINK
    if (
        kind not in (FILE, FOLDER, LINK)
        or not 0 <= mode <= _MODES
        or (is_link and mode != 0)
        or size < 0
        or bool(size) > is_file
        or bool(digest) != is_file
        or (is_file and not is_digest(digest))
        or bool(target) != is_link
        or b"\0" in target
        or len(target) > MAX_PATH_BYTES
    ):
        raise StagingError(f"{path!r} is not a valid file, folder or link of a tree")


def _write(entry: ManifestEntry) -> bytes:
    digest = entry.digest.encode() or b"-"
    head = b"%b %o %d %b " % (entry.kind, entry.mode, entry.size, digest)
    return b"%b%b\0%b\0" % (head, entry.path, entry.target)


def _parse(data: bytes) -> Iterator[ManifestEntry]:
    fields = data.split(b"\0")
    if fields.pop() or len(fields) % 2:
        raise StagingError("a tree's manifest is cut short")
    for line, target in zip(fields[::2], fields[1::2], strict=True):
        head = _HEAD.match(line)
        if head is None:
            raise StagingError(f"{line[:200]!r} is not a line of a tree's manifest")
        digest = "" if head[4] == b"-" else head[4].decode()
        yield ManifestEntry(
            line[head.end() :], head[1], int(head[2], 8), int(head[3]), digest, target
        )
