"""Private working copies of trees, one for each attempt; changes in them affect nothing else."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from stoker.snapshot import copy_content
from stoker.staging.manifest import FILE, FOLDER, ManifestEntry, TreeManifest
from stoker.staging.tree_scan import hash_open

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def materialise(
    manifest: TreeManifest, folder: bytes, find: Callable[[ManifestEntry], bytes]
) -> list[str]:
    """Fill an empty folder with a tree. Returns the digests of contents that are missing or damaged.

    `find` returns the path of a file's content. The owner can write to every file and folder, because the
    copy belongs to the job; all other mode bits are as in the tree.
    """
    folders = [entry for entry in manifest.entries if entry.kind == FOLDER]
    for entry in folders:
        os.mkdir(os.path.join(folder, entry.path), 0o700)
    files = [entry for entry in manifest.entries if entry.kind == FILE]
    wrong = [
        entry.digest
        for entry in files
        if not copy_checked(entry, find(entry), os.path.join(folder, entry.path))
    ]
    for entry in manifest.entries:
        if entry.target:  # last, so that no file is written through a link
            os.symlink(entry.target, os.path.join(folder, entry.path))
    for entry in folders:
        os.chmod(os.path.join(folder, entry.path), entry.mode | 0o700)
    return wrong


def copy_checked(entry: ManifestEntry, source: bytes, target: bytes) -> bool:
    """Copy a content, sharing blocks if the file system can. Returns whether its digest is right."""
    try:
        reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        writer = os.open(target, _NEW, 0o600)
        try:
            copy_content(reader, writer)
            os.lseek(writer, 0, os.SEEK_SET)
            # Detects here, and not in a job, what a power failure damaged.
            digest, _size = hash_open(writer)
            os.fchmod(writer, entry.mode | 0o600)
        finally:
            os.close(writer)
    finally:
        os.close(reader)
    return digest == entry.digest


def remove(folder: bytes) -> None:
    """Delete a copy, even if its job has removed permissions; a missing copy is no error."""
    try:
        os.chmod(folder, 0o700)
        with os.scandir(folder) as found:
            entries = list(found)
    except FileNotFoundError:
        return
    for entry in entries:
        if stat.S_ISDIR(entry.stat(follow_symlinks=False).st_mode):
            remove(entry.path)
        else:
            os.unlink(entry.path)
    os.rmdir(folder)
