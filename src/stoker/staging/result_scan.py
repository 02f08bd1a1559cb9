"""Scan of a job's results folder for new and changed files that can be brought back."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from stoker.staging.manifest import (
    FILE,
    FOLDER,
    LINK,
    ManifestEntry,
    StagingError,
    TreeManifest,
    parents,
)
from stoker.staging.tree_scan import list_entries, read_entry

_MAX_LISTED = 20


class ResultScan(NamedTuple):
    """Results to bring back, the paths of their contents, and the files left behind with the reasons."""

    manifest: TreeManifest
    paths: dict[str, bytes]
    left: list[str]


def scan_results(
    folder: bytes, before: TreeManifest, results: bytes, limit_bytes: int
) -> ResultScan:
    """Compare a results folder with its original state. Follows no links and changes nothing."""
    try:
        is_folder = stat.S_ISDIR(os.lstat(folder).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return ResultScan(TreeManifest(()), {}, [])
    if not is_folder or os.path.realpath(folder) != os.path.join(
        _real_top(folder, results), results
    ):
        return ResultScan(TreeManifest(()), {}, ["it is no longer a folder of the working tree"])
    left: list[tuple[bytes, str]] = []
    known = {
        entry.path[len(results) + 1 :]: entry
        for entry in before.entries
        if entry.path.startswith(results + b"/")
    }
    fit = _pick(folder, known, limit_bytes, left)
    kept = {entry.path for entry in fit}
    above = {path for entry in fit for path in parents(entry.path)} - kept
    folders = [_as_folder(folder, path) for path in above]
    paths = {entry.digest: os.path.join(folder, entry.path) for entry in fit if entry.kind == FILE}
    return ResultScan(_manifest([*fit, *folders]), paths, _list_left(left))


def leads_inside(path: bytes, target: bytes) -> bool:
    """Whether a link below a folder stays below it, whatever other such links it passes through."""
    names = [name for name in target.split(b"/") if name not in (b"", b".")]
    ups = 0
    while ups < len(names) and names[ups] == b"..":
        ups += 1
    is_relative = not target.startswith(b"/")
    return is_relative and b".." not in names[ups:] and ups <= path.count(b"/")


def _real_top(folder: bytes, results: bytes) -> bytes:
    return os.path.realpath(folder[: -len(results) - 1])


def _is_same(entry: ManifestEntry, before: ManifestEntry | None) -> bool:
    if before is None or entry.kind != before.kind:
        return False
    # The copy gave the owner the right to write; that is not a change by the job.
    return entry.kind == FOLDER or entry._replace(mode=entry.mode | 0o600) == before._replace(
        path=entry.path, mode=before.mode | (0 if entry.kind == LINK else 0o600)
    )


def _pick(
    folder: bytes,
    known: dict[bytes, ManifestEntry],
    limit_bytes: int,
    left: list[tuple[bytes, str]],
) -> list[ManifestEntry]:
    """Select files up to the limit, small ones first: users look at those first."""

    def complain(path: bytes, reason: str) -> None:
        left.append((path, reason))

    fit, total = [], 0
    for entry in sorted(list_entries(folder, complain), key=lambda entry: (entry.size, entry.path)):
        before = known.get(entry.path)
        # A file that is new by its size and too large is not read: it may be very large.
        is_new = before is None or before.size != entry.size
        found = entry
        if not is_new or total + entry.size <= limit_bytes:
            read = read_entry(folder, entry, complain)
            if read is None or _is_same(read, before):
                continue
            found = read
        if total + found.size > limit_bytes:
            complain(found.path, f"{found.size >> 20} MiB, beyond sync.limit")
        elif found.kind == LINK and not leads_inside(found.path, found.target):
            complain(found.path, "a link that leads out of the results folder")
        else:
            fit.append(found)
            total += found.size
    return fit


def _as_folder(folder: bytes, path: bytes) -> ManifestEntry:
    return ManifestEntry(
        path, FOLDER, stat.S_IMODE(os.lstat(os.path.join(folder, path)).st_mode) & 0o777
    )


def _manifest(entries: list[ManifestEntry]) -> TreeManifest:
    try:
        return TreeManifest(entries)
    except StagingError as error:
        raise StagingError(f"the results cannot be brought back: {error}") from None


def _list_left(left: list[tuple[bytes, str]]) -> list[str]:
    listed = [f"{os.fsdecode(path)} ({reason})" for path, reason in sorted(left)[:_MAX_LISTED]]
    return listed + ([f"and {len(left) - _MAX_LISTED} more"] if len(left) > _MAX_LISTED else [])
