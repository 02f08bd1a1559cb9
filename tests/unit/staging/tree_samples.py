"""Trees of any shape, and a node that is hard to reach."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import strategies as st

from stoker.staging.node_cache import CollectedResults, NodeCache, Piece, WorkingCopy

T = TypeVar("T")
Tree = dict[bytes, Any]  # bytes: a file and its mode; str: a link; a dict: a folder

names = st.one_of(
    st.sampled_from([b"a", b"b", b"results", b" x\n", b"\xff\xfe", b"-rf", b"...", b"a.py"]),
    st.binary(min_size=1, max_size=20).map(
        lambda name: name.replace(b"\0", b"0").replace(b"/", b"_")
    ),
).filter(lambda name: name not in (b".", b".."))
files = st.tuples(st.binary(max_size=200), st.sampled_from([0o444, 0o555, 0o644, 0o755, 0o400]))
links = st.sampled_from(["a", "../x", "/etc/passwd", "nowhere/at/all", ".", "a/../../.."])
trees: st.SearchStrategy[Tree] = st.recursive(
    st.dictionaries(names, st.one_of(files, links), max_size=4),
    lambda inner: st.dictionaries(names, st.one_of(files, links, inner), max_size=4),
    max_leaves=12,
)


def grow(folder: bytes, tree: Tree) -> None:
    """Make a tree real."""
    os.makedirs(folder, exist_ok=True)
    for name, what in tree.items():
        path = os.path.join(folder, name)
        if isinstance(what, dict):
            grow(path, what)
        elif isinstance(what, str):
            os.symlink(what, path)
        else:
            with open(path, "wb") as file:
                file.write(what[0])
            os.chmod(path, what[1])


def read(folder: bytes) -> Tree:
    """What a folder holds; files with their modes, but for the owner's right to write."""
    found: Tree = {}
    for entry in os.scandir(folder):
        if entry.is_symlink():
            found[entry.name] = os.readlink(entry.path).decode()
        elif entry.is_dir():
            found[entry.name] = read(entry.path)
        else:
            content = Path(os.fsdecode(entry.path)).read_bytes()
            found[entry.name] = (content, entry.stat().st_mode & 0o777 & ~0o200)
    return found


def unwritable(tree: Tree) -> Tree:
    """The same tree as `read` tells it."""
    return {
        name: unwritable(what)
        if isinstance(what, dict)
        else what
        if isinstance(what, str)
        else (what[0], what[1] & ~0o200)
        for name, what in tree.items()
    }


class BadLine:
    """A node cache behind a line that loses calls, or their answers, repeats them, and brings some late.

    With each call it may also be that the node cache has started anew.
    """

    def __init__(self, folder: str, seed: int) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._late: list[Callable[[], object]] = []
        self.node_cache = NodeCache(folder)

    def missing(self, manifest: bytes) -> list[str]:
        return self._call(lambda: self.node_cache.missing(manifest))

    def put(self, pieces: list[Piece]) -> list[int]:
        return self._call(lambda: self.node_cache.put(pieces))

    def lay_out(self, manifest: bytes, name: str) -> WorkingCopy:
        return self._call(lambda: self.node_cache.lay_out(manifest, name))

    def collect(self, name: str, results: bytes, limit_bytes: int) -> CollectedResults:
        return self._call(lambda: self.node_cache.collect(name, results, limit_bytes))

    def fetch(self, name: str, digest: str, offset: int) -> bytes | None:
        return self._call(lambda: self.node_cache.fetch(name, digest, offset))

    def done(self, name: str) -> None:
        self._call(lambda: self.node_cache.done(name))

    def _call(self, work: Callable[[], T]) -> T:
        fate = self._random.random()
        if fate < 0.1:
            raise ConnectionError("lost on the way")
        if fate < 0.2:
            self._late.append(work)
            raise ConnectionError("held up on the way")
        if fate < 0.25:
            self.node_cache = NodeCache(self._folder)
        answer = work()
        if fate < 0.35:
            answer = work()
        while self._late and self._random.random() < 0.5:
            late = self._late.pop(self._random.randrange(len(self._late)))
            try:
                late()
            except Exception as error:  # nobody waits for its answer
                self.complaints = [*getattr(self, "complaints", []), error]
        if 0.35 <= fate < 0.45:
            raise ConnectionError("the answer was lost")
        return answer
