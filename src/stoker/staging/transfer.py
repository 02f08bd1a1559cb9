"""The head's side: a tree goes to a node, and what its job has made comes back.

The node is whatever has these methods; the calls may get lost (ConnectionError) and are made again.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from stoker.snapshot import flush
from stoker.staging.blobs import MAX_CHUNK_BYTES
from stoker.staging.bundle import Bundle
from stoker.staging.manifest import FILE, LINK, ManifestEntry, StagingError, TreeManifest
from stoker.staging.node_cache import Piece
from stoker.staging.result_scan import leads_inside
from stoker.staging.result_write import Part, ResultWriter

_PIECES = 1000
_SETBACKS = 2
_ROUNDS = 3
_TRIES = 6
_PAUSE_S = 0.2
_T = TypeVar("_T")


class NodeEndpoint(Protocol):
    """A node cache, as it is reached from here; its promises are Node cache's."""

    def missing(self, manifest: bytes) -> list[str]:
        """The contents of a tree that are not there."""

    def put(self, pieces: list[Piece]) -> list[int]:
        """Send pieces of contents; of each, how much is there now."""

    def lay_out(self, manifest: bytes, name: str) -> dict[str, Any]:
        """Make a copy: its `folder`, or what is `missing`."""

    def collect(self, name: str, results: bytes, limit_bytes: int) -> dict[str, Any]:
        """What a job has made: a `manifest`, what is `left`, and in which `folder`."""

    def fetch(self, name: str, digest: str, offset: int) -> bytes | None:
        """A piece of that; None if it is to be collected again."""

    def done(self, name: str) -> None:
        """Delete the copy."""


class FetchedResults(NamedTuple):
    """What came back; `left` says what did not, a line each, and `folder` where on the node it is."""

    files: int
    size_bytes: int
    left: list[str]
    folder: str

    @property
    def notice(self) -> str | None:
        """One line for the user, where not everything came."""
        if not self.left:
            return None
        return f"results were left in {self.folder} on the node: {', '.join(self.left)}"


def ship(
    bundle: Bundle, node: NodeEndpoint, name: str, pause: Callable[[float], object] = time.sleep
) -> str:
    """Bring a tree to a node, as far as the node does not have it; return the folder of its copy.

    Raises StagingError where that cannot be, with the reason, and ConnectionError where the node
    stays out of reach; asked again, it goes on where it ended.
    """
    line = _Line(pause)
    encoded = bundle.manifest.encoded
    missing = line.call(lambda: node.missing(encoded))
    for _round in range(_ROUNDS):
        _send(line, node, missing, bundle)
        answer = line.call(lambda: node.lay_out(encoded, name))
        if answer["folder"] is not None:
            return str(answer["folder"])
        missing = answer["missing"]  # it was pruned, or damaged, since we asked
    raise StagingError("the node loses files as fast as they come: look at its disk")


def bring_back(
    node: NodeEndpoint,
    name: str,
    results: bytes,
    folder: str,
    limit_bytes: int,
    pause: Callable[[float], object] = time.sleep,
) -> FetchedResults:
    """Bring what a job has made in `results` of its copy into a folder here, and delete the copy.

    The copy stays where something of it could not come. Asked again, it goes on where it ended, and
    what has come is not fetched again.
    """
    line = _Line(pause)

    def collect() -> dict[str, Any]:
        return line.call(lambda: node.collect(name, results, limit_bytes))

    answer = collect()
    manifest = TreeManifest.decode(answer["manifest"])
    if manifest.size_bytes > limit_bytes:
        raise StagingError("a node sends more results than it was asked for: they are refused")
    left = [str(each) for each in answer["left"]]
    files = 0
    if manifest.entries:
        try:
            files = _land(manifest, folder, _Source(line, node, name, collect), left)
        except ConnectionError:
            raise
        except OSError as error:
            raise StagingError(
                f"cannot write in {folder}: {error.strerror or error}; they were left in"
                f" {answer['folder']} on the node"
            ) from error
    if not left:
        line.call(lambda: node.done(name))
    return FetchedResults(files, manifest.size_bytes, left, str(answer["folder"]))


class _Line:
    """Makes calls that may get lost, until one is answered."""

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
    """Where results are read from."""

    line: _Line
    node: NodeEndpoint
    name: str
    collect: Callable[[], object]

    def read(self, digest: str, offset: int) -> bytes:
        for _again in range(_ROUNDS):
            data = self.line.call(lambda: self.node.fetch(self.name, digest, offset))
            if data is not None:
                return data
            self.collect()  # the node has started anew, and forgotten what we talk about
        raise ConnectionError("the node starts again and again")


def _send(line: _Line, node: NodeEndpoint, missing: list[str], bundle: Bundle) -> None:
    """Send contents, several small ones at a time, each from where the node has it to its end."""
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
            room -= len(pieces[-1][3])
        here = _put(line, node, pieces)
        for (digest, size, offset, _data), have in zip(pieces, here, strict=True):
            if have < size:
                waiting.append((digest, have))
                setbacks[digest] += have <= offset
            if setbacks[digest] > _SETBACKS:
                path = os.fsdecode(bundle.paths[digest])
                raise StagingError(f"cannot ship {path}: it has changed since it was read")


def _put(line: _Line, node: NodeEndpoint, pieces: list[Piece]) -> list[int]:
    return line.call(lambda: node.put(pieces))


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
    return digest, size, offset, data


def _land(manifest: TreeManifest, folder: str, source: _Source, left: list[str]) -> int:
    """Write results below a folder; return how many files are there now, and note what is not."""
    files = 0
    with contextlib.closing(ResultWriter(folder)) as landing:
        for entry in manifest.entries:
            try:
                if not landing.holds(entry):
                    _fetch_one(landing, entry, source)
                files += entry.kind == FILE
            except ConnectionError:
                raise
            except OSError as error:
                left.append(f"{os.fsdecode(entry.path)} ({error.strerror or error})")
    # The copy is deleted next: what came out of it is to be safe by then.
    flush(os.fsencode(folder), ctypes.CDLL(None).syncfs)
    return files


def _fetch_one(landing: ResultWriter, entry: ManifestEntry, source: _Source) -> None:
    if entry.kind != FILE:
        if entry.kind == LINK and not leads_inside(entry.path, entry.target):
            raise OSError("a link that leads out of the results folder")
        landing.make(entry)
        return
    with landing.part(entry) as part:
        for _round in range(_ROUNDS):
            if _fill(part, entry, source) and part.finish():
                return
        part.give_up()
        raise OSError("it changes while it is read")


def _fill(part: Part, entry: ManifestEntry, source: _Source) -> bool:
    """Read on to the end of a file; False where it is shorter by now."""
    have = part.size
    while have < entry.size:
        data = source.read(entry.digest, have)
        if not data:
            return False
        part.write(have, data[: entry.size - have])
        have += len(data)
    return have == entry.size or part.size == entry.size
