"""Content of a transfer to a node: a snapshot, and optionally the folder of a run."""

from __future__ import annotations

import os
from typing import NamedTuple

from stoker.staging.manifest import FILE, FOLDER, ManifestEntry, TreeManifest, check_path, parents
from stoker.staging.tree_scan import scan

_FOLDER_MODE = 0o755


class Bundle(NamedTuple):
    """A tree's manifest, and the paths of its contents on this machine by digest."""

    manifest: TreeManifest
    paths: dict[str, bytes]


def pack(snapshot: str, *, inside: str = "", run: tuple[str, str] | None = None) -> Bundle:
    """Bundle a snapshot with the folder `inside` it in which the job runs.

    `run` is a path in the tree and a folder of this machine that replaces it with all its content: the
    parameters of a run, and what its earlier attempts left.
    """
    top = os.fsencode(snapshot)
    entries, paths = _take(top, b"")
    if inside:
        _clear_the_way(entries, os.fsencode(inside))
    if run is not None:
        below = os.fsencode(run[0])
        _clear_the_way(entries, below)
        more, where = _take(os.fsencode(run[1]), below)
        paths |= where
        for path in [path for path in entries if path.startswith(below + b"/")]:
            del entries[path]
        entries |= more
    return Bundle(TreeManifest(entries.values()), paths)


def _take(folder: bytes, below: bytes) -> tuple[dict[bytes, ManifestEntry], dict[str, bytes]]:
    entries: dict[bytes, ManifestEntry] = {}
    paths: dict[str, bytes] = {}
    for entry in scan(folder).entries if os.path.isdir(folder) else ():
        placed = entry._replace(path=os.path.join(below, entry.path))
        entries[placed.path] = placed
        if entry.kind == FILE:
            paths[entry.digest] = os.path.join(folder, entry.path)
    return entries, paths


def _clear_the_way(entries: dict[bytes, ManifestEntry], path: bytes) -> None:
    """Replace links along a path by folders: a link would lead elsewhere on a node."""
    check_path(path)
    for folder in (*parents(path), path):
        if folder not in entries or entries[folder].kind != FOLDER:
            entries[folder] = ManifestEntry(folder, FOLDER, _FOLDER_MODE)
