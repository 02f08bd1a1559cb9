"""The node's side: contents that came, copies laid out of them, and what their jobs have left.

    blobs/ab/<digest>    contents, read-only, shared by all trees
    parts/<digest>       contents on their way
    copies/<name>/       `manifest`, as it was laid out, and `tree`, the job's own
    over/<name>          marks of copies that are done with

Every call may come twice, late, or be cut short by a crash: none of that leaves anything half done.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
import time
from typing import Any

from stoker.staging.blobs import MAX_CHUNK_BYTES, Blobs, full_told
from stoker.staging.manifest import StagingError, TreeManifest, check_path
from stoker.staging.result_scan import ResultScan, reap
from stoker.staging.working_copies import materialise, remove

Piece = tuple[
    str, int, int, bytes
]  # of a content: its digest, its size, an offset, the bytes there
DEFAULT_LIMIT_BYTES = 4 << 30
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OLD_S = 86400.0


class NodeCache:
    """A folder of this machine that trees are shipped to. Trees of more than the limit are refused."""

    def __init__(self, folder: str, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._copies = os.path.join(folder, "copies")
        self._over = os.path.join(folder, "over")
        for each in (folder, self._copies, self._over):
            os.makedirs(each, mode=0o700, exist_ok=True)
        self._blobs = Blobs(folder, limit_bytes)
        self._result_scans: dict[str, ResultScan] = {}

    def missing(self, manifest: bytes) -> list[str]:
        """The contents of a tree that are not here; refused if there is no room for it."""
        tree = self._read(manifest)
        missing = sorted(digest for digest in tree.sizes if not self._blobs.touch(digest))
        needed = tree.size_bytes + sum(tree.sizes[digest] for digest in missing)
        free = shutil.disk_usage(self._folder).free
        if needed > free:
            raise StagingError(
                f"no space is left in {self._folder}: {needed >> 20} MiB are needed and"
                f" {free >> 20} MiB free; free some, then retry"
            )
        return missing

    def put(self, pieces: list[Piece]) -> list[int]:
        """Take pieces of contents; return of each how much is here now, which is where to go on."""
        return [self._blobs.put(*piece) for piece in pieces]

    def lay_out(self, manifest: bytes, name: str) -> dict[str, Any]:
        """Make the copy of this name: its `folder`, or the contents that are `missing` for it.

        Asked again for a copy that is there, it is left as its job has it by now.
        """
        tree = self._read(manifest)
        copy = self._copy(name)
        if os.path.lexists(os.path.join(self._over, name)):
            raise StagingError(f"copy {name} is done with: ask for another")
        if not os.path.lexists(copy):
            missing = self._lay_out_new(tree, copy)
            if missing:
                return {"folder": None, "missing": missing}
            if os.path.lexists(os.path.join(self._over, name)):
                self.done(name)  # again: it was said while we were at work
                raise StagingError(f"copy {name} is done with: ask for another")
        with open(os.path.join(copy, "manifest"), "rb") as file:
            if file.read() != tree.encoded:
                raise StagingError(f"copy {name} was made of another tree: ask for another")
        return {"folder": os.path.join(copy, "tree"), "missing": []}

    def _lay_out_new(self, tree: TreeManifest, copy: str) -> list[str]:
        """Lay out under another name; the copy appears whole or not at all."""
        with full_told(self._folder):
            new = tempfile.mkdtemp(prefix=".new-", dir=self._copies)
            try:
                folder = os.path.join(new, "tree")
                os.mkdir(folder, 0o700)
                wrong = materialise(
                    tree,
                    os.fsencode(folder),
                    lambda entry: os.fsencode(self._blobs.path(entry.digest)),
                )
                for digest in wrong:
                    self._blobs.drop(digest)
                if wrong:
                    remove(os.fsencode(new))
                    return sorted(set(wrong))
                with open(os.path.join(new, "manifest"), "wb") as file:
                    file.write(tree.encoded)
                os.rename(new, copy)
            except OSError as error:
                remove(os.fsencode(new))
                # Else the same call, made twice, has just been through.
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            except BaseException:
                remove(os.fsencode(new))
                raise
        return []

    def collect(self, name: str, results: bytes, limit_bytes: int) -> dict[str, Any]:
        """What a job has made or changed in a folder of its copy: a `manifest` relative to that folder.

        The smallest come first, up to the limit. `left` says of what is not in it why, a few words a
        file, and `folder` where that lies.
        """
        copy = self._copy(name)
        check_path(results)
        folder = os.path.join(os.fsencode(copy), b"tree", results)
        if os.path.lexists(os.path.join(self._over, name)):
            return {"manifest": b"", "left": [], "folder": os.fsdecode(folder)}  # all had come
        if not os.path.isdir(copy):
            raise StagingError(f"there is no copy {name} here")
        with open(os.path.join(copy, "manifest"), "rb") as file:
            before = TreeManifest.decode(file.read())
        result_scan = reap(folder, before, results, limit_bytes)
        self._result_scans[name] = result_scan
        return {
            "manifest": result_scan.manifest.encoded,
            "left": result_scan.left,
            "folder": os.fsdecode(folder),
        }

    def fetch(self, name: str, digest: str, offset: int) -> bytes | None:
        """A piece of a content that `collect` has named; empty at its end.

        None where nothing was collected, as after a restart: that is to be done again then.
        """
        result_scan = self._result_scans.get(name)
        if result_scan is None:
            return None
        path = result_scan.paths.get(digest)
        if path is None:
            raise StagingError(f"copy {name} has no results of that digest")
        try:
            with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
                file.seek(offset)
                return file.read(MAX_CHUNK_BYTES)
        except FileNotFoundError:
            return b""

    def done(self, name: str) -> None:
        """Delete a copy; it is never made again, however late a call for it comes."""
        copy = self._copy(name)
        with full_told(self._folder):
            os.close(os.open(os.path.join(self._over, name), os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._result_scans.pop(name, None)
            # Out of the way at once: nobody must find half of it.
            gone = os.path.join(self._copies, f".gone-{name}")
            with contextlib.suppress(FileNotFoundError):
                os.rename(copy, gone)
            remove(os.fsencode(gone))

    def prune(self, keep_bytes: int, spare_s: float = 3600.0) -> int:
        """Drop contents that were used least recently, beyond this much, and what crashes have left."""
        for folder, is_stale in ((self._copies, _is_leftover), (self._over, _is_mark)):
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    if is_stale(name) and time.time() - os.lstat(path).st_mtime > _OLD_S:
                        (remove if os.path.isdir(path) else os.unlink)(os.fsencode(path))
        return self._blobs.prune(keep_bytes, spare_s)

    def _read(self, manifest: bytes) -> TreeManifest:
        tree = TreeManifest.decode(manifest)
        if tree.size_bytes > self._limit_bytes:
            raise StagingError(
                f"a tree of {tree.size_bytes >> 20} MiB is more than a node takes,"
                f" {self._limit_bytes >> 20} MiB: name what is no code in .gitignore"
            )
        return tree

    def _copy(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise StagingError(f"{name[:200]!r} cannot be the name of a copy")
        return os.path.join(self._copies, name)


def _is_leftover(name: str) -> bool:
    return name.startswith((".new-", ".gone-"))


def _is_mark(name: str) -> bool:
    return bool(name)
