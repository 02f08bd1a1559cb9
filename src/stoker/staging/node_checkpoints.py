"""Checkpoint folders of a node's jobs, which travel between the node and the head.

    <folder>/7/7042/    checkpoints of job 7042, which its attempts read and write
    <folder>/.new-…     a folder that is being made

Every call may be repeated, come late, or be interrupted by a crash: a job finds a whole folder or none.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Collection, Iterator

from stoker.checkpoints import checkpoint_path
from stoker.staging.blobs import MAX_CHUNK_BYTES, Blobs, staging_errors
from stoker.staging.folder_swap import put_in_place
from stoker.staging.manifest import FILE, LINK, ManifestEntry, StagingError, TreeManifest
from stoker.staging.node_cache import CollectedResults, WorkingCopy
from stoker.staging.result_scan import leads_inside
from stoker.staging.tree_scan import list_entries, read_entries
from stoker.staging.working_copies import materialise, remove

_OLD_S = 86400.0
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
Signature = frozenset[tuple[bytes, int, int]]


class NodeCheckpoints:
    """The folders of all jobs, below one folder. Contents come through the blobs of the upload cache."""

    def __init__(self, folder: str, blobs: Blobs) -> None:
        self._folder = folder
        self._blobs = blobs
        self._collected: dict[int, dict[str, bytes]] = {}

    def path(self, job: int) -> str:
        """Return the folder of a job, whether it exists or not."""
        return os.path.join(self._folder, checkpoint_path(job))

    def signature(self, job: int) -> Signature:
        """Return what tells whether a job has written checkpoints: paths, sizes and times of its files."""
        return frozenset(_signature(os.fsencode(self.path(job))))

    def lay_out(self, manifest: bytes, job: int) -> WorkingCopy:
        """Replace a job's folder by a tree, unless contents are missing for it."""
        tree = TreeManifest.decode(manifest)
        path = self.path(job)
        with staging_errors(self._folder):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            new = tempfile.mkdtemp(prefix=".new-", dir=self._folder)
            try:
                wrong = materialise(
                    tree,
                    os.fsencode(new),
                    lambda entry: os.fsencode(self._blobs.path(entry.digest)),
                )
                for digest in wrong:
                    self._blobs.drop(digest)
                if wrong:
                    return WorkingCopy(None, sorted(set(wrong)))
                put_in_place(new, path)
            finally:
                remove(os.fsencode(new))
        return WorkingCopy(path, [])

    def collect(self, job: int, limit_bytes: int) -> CollectedResults:
        """Read a job's folder: all of it, or nothing if it is too large or changes; `left` says why.

        Links that lead out of the folder are left out.
        """
        path = self.path(job)
        top = os.fsencode(path)
        problems: list[str] = []

        def complain(name: bytes, reason: str) -> None:
            problems.append(f"{os.fsdecode(name) or path}: {reason}")

        size = sum(entry.size for entry in list_entries(top, complain))
        if size > limit_bytes:
            problems.append(f"{size >> 20} MiB are more than sync.limit")
        entries = [] if problems else [_inside(entry, top) for entry in read_entries(top, complain)]
        if problems:
            return CollectedResults(b"", problems[:1], path)
        kept = [
            each for each in entries if each.kind != LINK or leads_inside(each.path, each.target)
        ]
        self._collected[job] = {
            entry.digest: os.path.join(top, entry.path) for entry in kept if entry.kind == FILE
        }
        return CollectedResults(TreeManifest(kept).encoded, [], path)

    def fetch(self, job: int, digest: str, offset: int) -> bytes | None:
        """Return a piece of a content that `collect` has listed; empty at its end or if it is gone.

        None if nothing was collected, as after a restart: call `collect` again.
        """
        paths = self._collected.get(job)
        if paths is None:
            return None
        if digest not in paths:
            raise StagingError(f"job {job} has no checkpoint with that digest")
        try:
            with open(os.open(paths[digest], _READ), "rb") as file:
                file.seek(offset)
                return file.read(MAX_CHUNK_BYTES)
        except OSError:
            return b""

    def delete(self, job: int) -> None:
        """Delete a job's folder: the head has it."""
        self._collected.pop(job, None)
        with contextlib.suppress(FileNotFoundError), staging_errors(self._folder):
            gone = tempfile.mkdtemp(prefix=".new-", dir=self._folder)
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.rename(self.path(job), gone)
            finally:
                remove(os.fsencode(gone))

    def prune(self, keep: Collection[int], spare_s: float) -> None:
        """Delete the folders of other jobs that have not changed for so long, and leftovers of crashes."""
        now = time.time()
        for name in _names(self._folder):
            path = os.path.join(self._folder, name)
            if name.startswith(".new-"):
                if now - os.lstat(path).st_mtime > _OLD_S:
                    remove(os.fsencode(path))
                continue
            for job in _names(path):
                if job.isdecimal() and int(job) not in keep:
                    self._delete_old(int(job), now - spare_s)

    def _delete_old(self, job: int, before: float) -> None:
        times = [changed / 1e9 for _path, _size, changed in self.signature(job)]
        with contextlib.suppress(FileNotFoundError):
            times.append(os.lstat(self.path(job)).st_mtime)
            if max(times) < before:
                self.delete(job)


def _signature(top: bytes) -> Iterator[tuple[bytes, int, int]]:
    with contextlib.suppress(OSError), os.scandir(top) as found:
        for entry in found:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    yield from _signature(entry.path)
                    continue
                status = entry.stat(follow_symlinks=False)
                yield entry.path, status.st_size, status.st_mtime_ns


def _inside(entry: ManifestEntry, top: bytes) -> ManifestEntry:
    """Return an entry; an absolute link into the folder becomes a relative one."""
    if entry.kind != LINK or not (entry.target + b"/").startswith(top + b"/"):
        return entry
    target = os.path.relpath(entry.target, os.path.dirname(os.path.join(top, entry.path)))
    return entry._replace(target=target)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
