"""Upload cache of a node: contents, working copies made from them, and their results.

    blobs/ab/<digest>    contents, read-only, shared by all trees
    parts/<digest>       incomplete contents
    copies/<name>/       `manifest`, as the copy was made, and `tree`, which the job may change
    over/<name>          marks of copies that are finished

Every call may be repeated, come late, or be interrupted by a crash: none of that leaves anything half done.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
import time
from typing import NamedTuple

from stoker.staging.blobs import MAX_CHUNK_BYTES, Blobs, staging_errors
from stoker.staging.manifest import StagingError, TreeManifest, check_path
from stoker.staging.result_scan import ResultScan, scan_results
from stoker.staging.working_copies import materialise, remove

DEFAULT_LIMIT_BYTES = 4 << 30
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OLD_S = 86400.0


class Piece(NamedTuple):
    """A part of a content: the content's digest and size, and the bytes at an offset."""

    digest: str
    size: int
    offset: int
    data: bytes


class WorkingCopy(NamedTuple):
    """The folder of a copy; None if the contents in `missing` must be sent first."""

    folder: str | None
    missing: list[str]


class CollectedResults(NamedTuple):
    """Encoded manifest of what a job made, what is not in it and why, and the folder of both."""

    manifest: bytes
    left: list[str]
    folder: str


class NodeCache:
    """A folder of this machine to which trees are transferred. Trees above the limit are refused."""

    def __init__(self, folder: str, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._copies = os.path.join(folder, "copies")
        self._over = os.path.join(folder, "over")
        for each in (folder, self._copies, self._over):
            os.makedirs(each, mode=0o700, exist_ok=True)
        self.blobs = Blobs(folder, limit_bytes)
        self._result_scans: dict[str, ResultScan] = {}

    def missing(self, manifest: bytes) -> list[str]:
        """Return the contents of a tree that are not here; raise StagingError if there is no space for it."""
        tree = self._read(manifest)
        missing = sorted(digest for digest in tree.sizes if not self.blobs.touch(digest))
        needed = tree.size_bytes + sum(tree.sizes[digest] for digest in missing)
        free = shutil.disk_usage(self._folder).free
        if needed > free:
            raise StagingError(
                f"no space is left in {self._folder}: {needed >> 20} MiB are needed and"
                f" {free >> 20} MiB free",
                errno.ENOSPC,
            )
        return missing

    def put(self, pieces: list[Piece]) -> list[int]:
        """Add pieces of contents. Returns for each how much of its content is here: where to continue."""
        return [self.blobs.put(*piece) for piece in pieces]

    def lay_out(self, manifest: bytes, name: str) -> WorkingCopy:
        """Make the copy of this name, unless contents are missing for it.

        A copy that exists is left as it is: its job may have changed it.
        """
        tree = self._read(manifest)
        copy = self._copy(name)
        if os.path.lexists(os.path.join(self._over, name)):
            raise StagingError(f"copy {name} is finished: ask for another")
        if not os.path.lexists(copy):
            missing = self._lay_out_new(tree, copy)
            if missing:
                return WorkingCopy(None, missing)
            if os.path.lexists(os.path.join(self._over, name)):
                self.done(name)  # repeated: `done` was called while the copy was being made
                raise StagingError(f"copy {name} is finished: ask for another")
        with open(os.path.join(copy, "manifest"), "rb") as file:
            if file.read() != tree.encoded:
                raise StagingError(f"copy {name} was made of another tree: ask for another")
        return WorkingCopy(os.path.join(copy, "tree"), [])

    def _lay_out_new(self, tree: TreeManifest, copy: str) -> list[str]:
        """Make the copy under a temporary name, so that it appears whole or not at all."""
        with staging_errors(self._folder):
            new = tempfile.mkdtemp(prefix=".new-", dir=self._copies)
            try:
                folder = os.path.join(new, "tree")
                os.mkdir(folder, 0o700)
                wrong = materialise(
                    tree,
                    os.fsencode(folder),
                    lambda entry: os.fsencode(self.blobs.path(entry.digest)),
                )
                for digest in wrong:
                    self.blobs.drop(digest)
                if wrong:
                    remove(os.fsencode(new))
                    return sorted(set(wrong))
                with open(os.path.join(new, "manifest"), "wb") as file:
                    file.write(tree.encoded)
                os.rename(new, copy)
            except OSError as error:
                remove(os.fsencode(new))
                # Otherwise a repeated call has just made the same copy.
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            except BaseException:
                remove(os.fsencode(new))
                raise
        return []

    def collect(self, name: str, results: bytes, limit_bytes: int) -> CollectedResults:
        """Find the files that a job made or changed in a folder of its copy.

        The smallest files come first, up to the limit. `left` says for each other file why it is not there.
        """
        copy = self._copy(name)
        check_path(results)
        folder = os.path.join(os.fsencode(copy), b"tree", results)
        if os.path.lexists(os.path.join(self._over, name)):
            return CollectedResults(b"", [], os.fsdecode(folder))  # already fetched
        if not os.path.isdir(copy):
            raise StagingError(f"there is no copy {name} here")
        with open(os.path.join(copy, "manifest"), "rb") as file:
            before = TreeManifest.decode(file.read())
        result_scan = scan_results(folder, before, results, limit_bytes)
        self._result_scans[name] = result_scan
        return CollectedResults(result_scan.manifest.encoded, result_scan.left, os.fsdecode(folder))

    def fetch(self, name: str, digest: str, offset: int) -> bytes | None:
        """Return a piece of a content that `collect` has listed; empty at its end.

        None if nothing was collected, as after a restart: call `collect` again.
        """
        result_scan = self._result_scans.get(name)
        if result_scan is None:
            return None
        path = result_scan.paths.get(digest)
        if path is None:
            raise StagingError(f"copy {name} has no results with that digest")
        try:
            with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
                file.seek(offset)
                return file.read(MAX_CHUNK_BYTES)
        except FileNotFoundError:
            return b""

    def done(self, name: str) -> None:
        """Delete a copy. It is never made again, however late a call for it comes."""
        copy = self._copy(name)
        with staging_errors(self._folder):
            os.close(os.open(os.path.join(self._over, name), os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._result_scans.pop(name, None)
            # Renamed first: no process must find half of it.
            gone = os.path.join(self._copies, f".gone-{name}")
            with contextlib.suppress(FileNotFoundError):
                os.rename(copy, gone)
            remove(os.fsencode(gone))

    def prune(self, keep_bytes: int, spare_s: float = 3600.0) -> int:
        """Delete the least recently used contents beyond `keep_bytes`, and leftovers of crashes."""
        for folder, prefixes in ((self._copies, (".new-", ".gone-")), (self._over, "")):
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    if name.startswith(prefixes) and time.time() - os.lstat(path).st_mtime > _OLD_S:
                        (remove if os.path.isdir(path) else os.unlink)(os.fsencode(path))
        return self.blobs.prune(keep_bytes, spare_s)

    def _read(self, manifest: bytes) -> TreeManifest:
        tree = TreeManifest.decode(manifest)
        if tree.size_bytes > self._limit_bytes:
            raise StagingError(
                f"a tree of {tree.size_bytes >> 20} MiB is larger than a node's limit of"
                f" {self._limit_bytes >> 20} MiB: list large files that are no code in .gitignore"
            )
        return tree

    def _copy(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise StagingError(f"{name[:200]!r} cannot be the name of a copy")
        return os.path.join(self._copies, name)
