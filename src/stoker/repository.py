"""Git repository of a folder, and whether git may run there.

git runs programs that a repository names: filters, monitors, hooks. A folder of the user may be inside a
repository of another user, so Stoker runs git only in repositories of its own user or root. What it reads
from other repositories is hostile input.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_LINE_BYTES = 4096
_REFS_BYTES = 16 << 20


def find_git(folder: bytes) -> bytes | None:
    """Return the `.git` of a folder's repository; None outside of repositories."""
    while True:
        candidate = os.path.join(folder, b".git")
        if os.path.lexists(candidate):
            return candidate
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def is_own(git: bytes) -> bool:
    """Whether only this user and root, and users that they trust, decide what git runs in a repository."""
    trusted = (os.getuid(), 0)
    try:
        if (
            os.lstat(git).st_uid not in trusted
            or os.stat(os.path.dirname(git)).st_uid not in trusted
        ):
            return False
        for path in _trusted_paths(git):
            try:
                found = os.stat(path)
            except FileNotFoundError:
                continue
            if found.st_uid not in trusted or found.st_mode & stat.S_IWOTH:
                return False
    except OSError:
        return False
    return True


def read_head(git: bytes) -> str | None:
    """Return the checked-out commit of a repository without git; None if there is none."""
    try:
        folder = _git_folder(git)
        head = _read_line(os.path.join(folder, b"HEAD"))
        if head.startswith(b"ref: "):
            head = _read_ref(folder, head[5:])
    except (OSError, ValueError):  # a ValueError comes from a NUL byte in a path
        return None
    return head.decode() if is_hash(head) else None


def is_hash(word: bytes) -> bool:
    """Whether a word can be a commit id."""
    return len(word) in (40, 64) and not word.strip(b"0123456789abcdef")


def open_plain(path: bytes) -> int:
    """Open a plain file for reading, without waiting for another process; FileNotFoundError for all else."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(2, "no plain file", path)
    return fd


def _trusted_paths(git: bytes) -> Iterator[bytes]:
    """Return the files and folders of a repository that name programs for git to run."""
    folder = _git_folder(git)
    yield folder
    yield os.path.join(folder, b"config.worktree")
    common = _common_folder(folder)
    yield common
    yield os.path.join(common, b"config")


def _git_folder(git: bytes) -> bytes:
    if os.path.isdir(git):
        return git
    # In a worktree or a submodule, .git is a file with the path of the folder.
    named = _read_line(git).removeprefix(b"gitdir: ")
    return os.path.join(os.path.dirname(git), named)


def _common_folder(folder: bytes) -> bytes:
    named = os.path.join(folder, b"commondir")
    return os.path.join(folder, _read_line(named)) if os.path.lexists(named) else folder


def _read_ref(folder: bytes, ref: bytes) -> bytes:
    common = _common_folder(folder)
    try:
        return _read_line(os.path.join(common, ref))
    except FileNotFoundError:
        packed = _read(os.path.join(common, b"packed-refs"), _REFS_BYTES)
        lines = (line.split() for line in packed.splitlines())
        return next((words[0] for words in lines if words[1:] == [ref]), b"")


def _read_line(path: bytes) -> bytes:
    return _read(path, _LINE_BYTES).partition(b"\n")[0].strip()


def _read(path: bytes, most: int) -> bytes:
    fd = open_plain(path)
    try:
        read = b""
        while len(read) < most and (piece := os.read(fd, most - len(read))):
            read += piece
        return read
    finally:
        os.close(fd)
