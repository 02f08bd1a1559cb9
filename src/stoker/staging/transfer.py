"""Transfer of a tree to a node and of its job's results back, as seen from the head.

A node is any object with the methods of NodeEndpoint. Calls may fail with ConnectionError and are repeated.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from stoker.snapshot import flush
from stoker.staging.blobs import MAX_CHUNK_BYTES
from stoker.staging.bundle import Bundle
from stoker.staging.folder_swap import put_in_place
from stoker.staging.manifest import FILE, LINK, ManifestEntry, StagingError, TreeManifest
from stoker.staging.node_cache import CollectedResults, Piece, WorkingCopy
from stoker.staging.result_scan import leads_inside
from stoker.staging.result_write import Part, ResultWriter
from stoker.staging.working_copies import copy_checked, remove

_PIECES = 1000
_SETBACKS = 2
_ROUNDS = 3
_TRIES = 6
_PAUSE_S = 0.2
_T = TypeVar("_T")


class NodeEndpoint(Protocol):
    """Access to the NodeCache of a node; NodeCache documents the promises."""

    def missing(self, manifest: bytes) -> list[str]:
        """Return the contents of a tree that are not there."""

    def put(self, pieces: list[Piece]) -> list[int]:
        """Send pieces of contents. Returns how much of each content is there."""

    def lay_out(self, manifest: bytes, name: str) -> WorkingCopy:
        """Make a copy, unless contents are missing for it."""

    def collect(self, name: str, results: bytes, limit_bytes: int) -> CollectedResults:
        """Find what a job made."""

    def fetch(self, name: str, digest: str, offset: int) -> bytes | None:
        """Return a piece of a result; None if `collect` must be called again."""

    def done(self, name: str) -> None:
        """Delete the copy."""


class FetchedResults(NamedTuple):
    """Results that came back. `left` lists what did not; `folder` is where that is on the node."""

    files: int
    size_bytes: int
    left: list[str]
    folder: str

    @property
    def notice(self) -> str | None:
        """One line for the user if something was left behind; else None."""
        if not self.left:
            return None
        return f"results were left in {self.folder} on the node: {', '.join(self.left)}"


def ship(
    bundle: Bundle, node: NodeEndpoint, name: str, pause: Callable[[float], object] = time.sleep
) -> str:
    """Transfer the missing part of a tree to a node. Returns the folder of its copy there.

    Raises StagingError with the reason if that is impossible, and ConnectionError if the node stays
    unreachable. A repeated call continues where the last one stopped.
    """
    line = _Line(pause)
    encoded = bundle.manifest.encoded
    missing = line.call(lambda: node.missing(encoded))
    for _round in range(_ROUNDS):
        _send(line, node, missing, bundle)
        copy = line.call(lambda: node.lay_out(encoded, name))
        if copy.folder is not None:
            return copy.folder
        missing = copy.missing  # pruned or damaged since we asked
    raise StagingError("the node loses files as fast as they arrive: check its disk")


def bring_back(
    node: NodeEndpoint,
    name: str,
    results: bytes,
    folder: str,
    limit_bytes: int,
    pause: Callable[[float], object] = time.sleep,
) -> FetchedResults:
    """Bring the results of a job from its copy into a folder here, and delete the copy.

    The copy stays if some results could not be brought back. A repeated call continues where the last one
    stopped, and does not fetch the same results again.
    """
    line = _Line(pause)

    def collect() -> CollectedResults:
        return line.call(lambda: node.collect(name, results, limit_bytes))

    collected = collect()
    manifest = TreeManifest.decode(collected.manifest)
    if manifest.size_bytes > limit_bytes:
        raise StagingError("the node sends more results than the limit allows: they are refused")
    left = [*collected.left]
    files = 0
    if manifest.entries:
        try:
            files = _write_results(manifest, folder, _Source(line, node, name, collect), left)
        except ConnectionError:
            raise
        except OSError as error:
            raise StagingError(
                f"cannot write in {folder}: {error.strerror or error}; they were left in"
                f" {collected.folder} on the node"
            ) from error
    if not left:
        line.call(lambda: node.done(name))
    return FetchedResults(files, manifest.size_bytes, left, collected.folder)


def bring_checkpoints(
    node: NodeEndpoint,
    name: str,
    folder: str,
    limit_bytes: int,
    pause: Callable[[float], object] = time.sleep,
) -> str | None:
    """Replace a folder here by the one of a job on a node. Returns the reason if the node has to keep it.

    The folder changes as a whole. Contents that it has already are not fetched.
    """
    line = _Line(pause)

    def collect() -> CollectedResults:
        return line.call(lambda: node.collect(name, b"", limit_bytes))

    collected = collect()
    if collected.left:
        return collected.left[0]
    manifest = TreeManifest.decode(collected.manifest)
    if manifest.size_bytes > limit_bytes:
        raise StagingError(
            "the node sends more checkpoints than the limit allows: they are refused"
        )
    if not manifest.entries:
        return None
    parent, job = os.path.split(folder)
    new = os.path.join(parent, f".new-{job}-{manifest.id[:16]}")
    try:
        _remove_others(parent, f".new-{job}-", os.path.basename(new))
        _copy_known(manifest, folder, new)
        left: list[str] = []
        _write_results(manifest, new, _Source(line, node, name, collect), left)
        if left:
            return left[0]
        put_in_place(new, folder)
        remove(os.fsencode(new))
    except ConnectionError:
        raise
    except OSError as error:
        raise StagingError(f"cannot write in {parent}: {error.strerror or error}") from error
    return None


def _remove_others(parent: str, prefix: str, wanted: str) -> None:
    """Remove what earlier transfers have left that were not completed."""
    os.makedirs(parent, exist_ok=True)
    for name in os.listdir(parent):
        if name.startswith(prefix) and name != wanted:
            remove(os.fsencode(os.path.join(parent, name)))


def _copy_known(manifest: TreeManifest, folder: str, new: str) -> None:
    """Copy the files of a tree that an older version of the folder has unchanged."""
    top, old = os.fsencode(new), os.fsencode(folder)
    for entry in manifest.entries:
        if entry.kind != FILE or os.path.lexists(os.path.join(top, entry.path)):
            continue
        with contextlib.suppress(OSError):
            found = os.lstat(os.path.join(old, entry.path))
            if stat.S_ISREG(found.st_mode) and found.st_size == entry.size:
                target = os.path.join(top, entry.path)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                if not copy_checked(entry, os.path.join(old, entry.path), target):
                    os.unlink(target)


class _Line:
    """Repeats calls that fail with ConnectionError."""

    def __init__(self, pause: Callable[[float], object]) -> None:
        self._pause = pause

    def call(self, ask: Callable[[], _T]) -> _T:
        for tried in range(_TRIES - 1):
            try:
                return ask()
            except ConnectionError:
                self._pause(_PAUSE_S * 2**tried)
        return ask()


class _Source(NamedTuple):
    """Reader of the results on a node."""

    line: _Line
    node: NodeEndpoint
    name: str
    collect: Callable[[], object]

    def read(self, digest: str, offset: int) -> bytes:
        for _again in range(_ROUNDS):
            data = self.line.call(lambda: self.node.fetch(self.name, digest, offset))
            if data is not None:
                return data
            self.collect()  # the node has restarted and forgotten the results
        raise ConnectionError("the node restarts again and again")


def _send(line: _Line, node: NodeEndpoint, missing: list[str], bundle: Bundle) -> None:
    """Send contents, several small ones in one call, each from where the node has it to its end."""
    if not bundle.paths.keys() >= set(missing):
        raise StagingError("the node asks for a file that is not in the tree")
    waiting = [(digest, 0) for digest in missing]
    setbacks: Counter[str] = Counter()
    while waiting:
        pieces: list[Piece] = []
        room = MAX_CHUNK_BYTES
        while waiting and room and len(pieces) < _PIECES:
            digest, offset = waiting.pop()
            pieces.append(_read_piece(bundle, digest, offset, room))
            room -= len(pieces[-1].data)
        here = line.call(partial(node.put, pieces))
        for (digest, size, offset, _data), have in zip(pieces, here, strict=True):
            if have < size:
                waiting.append((digest, have))
                setbacks[digest] += have <= offset
            if setbacks[digest] > _SETBACKS:
                path = os.fsdecode(bundle.paths[digest])
                raise StagingError(f"cannot ship {path}: it has changed since it was read")


def _read_piece(bundle: Bundle, digest: str, offset: int, most: int) -> Piece:
    size, path = bundle.manifest.sizes[digest], bundle.paths[digest]
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
            file.seek(offset)
            data = file.read(min(most, size - offset))
    except OSError as error:
        raise StagingError(f"cannot ship {os.fsdecode(path)}: {error.strerror}") from error
    if size > offset and not data:
        raise StagingError(f"cannot ship {os.fsdecode(path)}: it is shorter than it was")
    return Piece(digest, size, offset, data)


def _write_results(manifest: TreeManifest, folder: str, source: _Source, left: list[str]) -> int:
    """Write results below a folder. Returns how many files are there; appends the failures to `left`."""
    files = 0
    with contextlib.closing(ResultWriter(folder)) as writer:
        for entry in manifest.entries:
            try:
                if not writer.holds(entry):
                    _fetch_one(writer, entry, source)
                files += entry.kind == FILE
            except ConnectionError:
                raise
            except OSError as error:
                left.append(f"{os.fsdecode(entry.path)} ({error.strerror or error})")
    # Before the copy is deleted, its results must be safely on disk.
    flush(os.fsencode(folder), ctypes.CDLL(None).syncfs)
    return files


def _fetch_one(writer: ResultWriter, entry: ManifestEntry, source: _Source) -> None:
    if entry.kind != FILE:
        if entry.kind == LINK and not leads_inside(entry.path, entry.target):
            raise OSError("a link that leads out of the results folder")
        writer.make(entry)
        return
    with writer.part(entry) as part:
        for _round in range(_ROUNDS):
            if _fill(part, entry, source) and part.finish():
                return
        part.give_up()
        raise OSError("it changes while it is read")


def _fill(part: Part, entry: ManifestEntry, source: _Source) -> bool:
    """Read to the end of a file; False if the file is shorter than expected."""
    have = part.size
    while have < entry.size:
        data = source.read(entry.digest, have)
        if not data:
            return False
        part.write(have, data[: entry.size - have])
        have += len(data)
    return have == entry.size or part.size == entry.size
