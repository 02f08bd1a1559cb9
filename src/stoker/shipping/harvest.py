"""What a job has left in its results folder, as far as it is new and fit to travel."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from stoker.shipping.manifest import FILE, FOLDER, LINK, Entry, Manifest, ShippingError, parents
from stoker.shipping.scan import read_entries

_TOLD = 20


class Harvest(NamedTuple):
    """What goes back, where its contents are, and what is left behind: a few words for each."""

    manifest: Manifest
    paths: dict[str, bytes]
    left: list[str]


def reap(folder: bytes, before: Manifest, results: bytes, limit_bytes: int) -> Harvest:
    """Compare a results folder with what was laid out there; nothing in it is followed or changed."""
    try:
        is_folder = stat.S_ISDIR(os.lstat(folder).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return Harvest(Manifest(()), {}, [])
    if not is_folder or os.path.realpath(folder) != os.path.join(
        _real_top(folder, results), results
    ):
        return Harvest(Manifest(()), {}, ["it is no folder of the working tree any more"])
    left: list[tuple[bytes, str]] = []
    known = {
        entry.path[len(results) + 1 :]: entry
        for entry in before.entries
        if entry.path.startswith(results + b"/")
    }
    found = read_entries(folder, lambda path, reason: left.append((path, reason)))
    new = [entry for entry in found if not _is_same(entry, known.get(entry.path))]
    fit = _fit(_movable(new, left), limit_bytes, left)
    kept = {entry.path for entry in fit}
    above = {path for entry in fit for path in parents(entry.path)} - kept
    folders = [_as_folder(folder, path) for path in above]
    paths = {entry.digest: os.path.join(folder, entry.path) for entry in fit if entry.kind == FILE}
    return Harvest(_manifest([*fit, *folders]), paths, _tell(left))


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


def _is_same(entry: Entry, before: Entry | None) -> bool:
    if before is None or entry.kind != before.kind:
        return False
    # The owner's right to write was given by the copy, and is no change of the job's.
    return entry.kind == FOLDER or entry._replace(mode=entry.mode | 0o600) == before._replace(
        path=entry.path, mode=before.mode | (0 if entry.kind == LINK else 0o600)
    )


def _movable(entries: Iterable[Entry], left: list[tuple[bytes, str]]) -> list[Entry]:
    movable = []
    for entry in entries:
        if entry.kind == LINK and not leads_inside(entry.path, entry.target):
            left.append((entry.path, "a link that leads out of the results folder"))
        else:
            movable.append(entry)
    return movable


def _fit(entries: list[Entry], limit_bytes: int, left: list[tuple[bytes, str]]) -> list[Entry]:
    """As many files as the limit allows: the small ones are what people look at first."""
    fit, total = [], 0
    for entry in sorted(entries, key=lambda entry: (entry.size, entry.path)):
        if total + entry.size > limit_bytes:
            left.append((entry.path, f"{entry.size >> 20} MiB, beyond sync.limit"))
        else:
            fit.append(entry)
            total += entry.size
    return fit


def _as_folder(folder: bytes, path: bytes) -> Entry:
    return Entry(path, FOLDER, stat.S_IMODE(os.lstat(os.path.join(folder, path)).st_mode) & 0o777)


def _manifest(entries: list[Entry]) -> Manifest:
    try:
        return Manifest(entries)
    except ShippingError as error:
        raise ShippingError(f"the results cannot be brought back: {error}") from None


def _tell(left: list[tuple[bytes, str]]) -> list[str]:
    told = [f"{os.fsdecode(path)} ({reason})" for path, reason in sorted(left)[:_TOLD]]
    return told + ([f"and {len(left) - _TOLD} more"] if len(left) > _TOLD else [])
