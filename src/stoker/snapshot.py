"""Snapshots: copies of working trees, so that editing a file does not change a run that still waits.

The id of a snapshot is a hash of its content, so equal trees are copied once. Files are read-only; folders
are not, because runs may write beside their code.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from stoker.errors import StokerError
from stoker.repository import find_git, is_own, open_plain

MAX_BYTES = 1 << 30
MAX_FILES = 50_000
_CHUNK_BYTES = 1 << 20
_GIT = ["git", "-c", "core.fsmonitor=false", "--no-optional-locks"]
# Errors after which the data are copied by read and write: other devices, file systems, old kernels.
_NO_RANGES = (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)


class _Entry(NamedTuple):
    """A file, link or folder of a tree; `digest` is of its content or target."""

    path: bytes
    kind: bytes  # f: file, x: executable file, l: link, d: folder
    digest: bytes = b""


def take(cwd: str | bytes, home: str) -> str:
    """Copy the working tree of a folder; return `ID`, or `ID/sub/folder` for the folder.

    In a git repository, copies all of it that git does not ignore; elsewhere, all below the folder.
    """
    cwd = os.path.realpath(os.fsencode(cwd))
    git = find_git(cwd)
    top = None if git is None else os.path.dirname(git)
    tree = _Tree(top or cwd, in_git=top is not None, without=os.path.realpath(os.fsencode(home)))
    below = os.path.relpath(cwd, tree.top)
    inside = b"" if below == b"." else below
    store = os.path.join(os.fsencode(home), b"snapshots")
    try:
        folder = [] if not inside else [inside.decode("utf-8")]
        os.makedirs(store, mode=0o700, exist_ok=True)
        names = list(tree.list_files())
        found = _identify(tree.read(names), inside)
        try:
            os.utime(os.path.join(store, found.encode()))  # used again: must not be pruned now
        except FileNotFoundError:
            found = _copy(tree, names, inside, store)
    except UnicodeDecodeError:
        raise StokerError(
            f"cannot take a snapshot in {cwd!r}: its name is not UTF-8; rename the folder"
        ) from None
    except OSError as error:
        where = f" ({os.fsdecode(error.filename)})" if error.filename else ""
        raise StokerError(
            f"cannot take a snapshot of {os.fsdecode(tree.top)}: {error.strerror}{where}"
        ) from error
    return "/".join([found, *folder])


class _Tree:
    """The files of a working tree that a snapshot has."""

    def __init__(self, top: bytes, *, in_git: bool, without: bytes) -> None:
        self.top = top
        self._in_git = in_git
        self._without = without

    def list_files(self) -> Iterator[bytes]:
        """Return all files and links, relative to the top; raises an error if they are too many."""
        count = size = 0
        for name in self._list_git(b"") if self._in_git else self._walk(b""):
            path = os.path.join(self.top, name)
            try:
                found = os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                continue  # deleted, but not in git
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
                continue
            count += 1
            size += found.st_size
            if count > MAX_FILES or size > MAX_BYTES:
                raise self._too_much(name)
            yield name

    def read(self, names: Iterable[bytes]) -> Iterator[_Entry]:
        """Read the files; those that have just been removed are left out."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                yield _describe(self.top, name)

    def _list_git(self, below: bytes) -> Iterator[bytes]:
        folder = os.path.join(self.top, below)
        _check_trust(folder)
        what = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        words = [*_GIT, "-C", os.fsdecode(folder), *what]
        listed = subprocess.run(words, capture_output=True, check=False)
        if listed.returncode:
            reason = listed.stderr.decode(errors="replace").strip().partition("\n")[0]
            raise StokerError(f"cannot take a snapshot of {os.fsdecode(folder)}: {reason}")
        for name in dict.fromkeys(listed.stdout.split(b"\0")):
            path = os.path.join(below, name.rstrip(b"/"))
            whole = os.path.join(self.top, path)
            if not name or self._is_left_out(whole):
                continue
            if os.path.isdir(whole) and not os.path.islink(whole):
                # A repository inside this one, such as a submodule, is listed by itself.
                if os.path.lexists(os.path.join(whole, b".git")):
                    yield from self._list_git(path)
            else:
                yield path

    def _walk(self, below: bytes) -> Iterator[bytes]:
        with os.scandir(os.path.join(self.top, below)) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                path = os.path.join(below, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != b".git" and not self._is_left_out(entry.path):
                        yield from self._walk(path)
                else:
                    yield path

    def _is_left_out(self, path: bytes) -> bool:
        return path == self._without or path.startswith(self._without + b"/")

    def _too_much(self, name: bytes) -> StokerError:
        remedy = (
            "list everything but code in .gitignore"
            if self._in_git
            else "make it a git repository (git init) and list everything but code in .gitignore"
        )
        return StokerError(
            f"{os.fsdecode(self.top)} holds more than {MAX_FILES:,} files or {MAX_BYTES >> 30} GiB"
            f" (seen at {os.fsdecode(name)}), too much for a snapshot: {remedy}"
        )


def _check_trust(top: bytes) -> None:
    """Refuse to run git in a repository of another user, unless git's own settings name it."""
    top = os.path.normpath(top)
    if is_own(os.path.join(top, b".git")):
        return
    # In another folder: the setting of the repository itself does not count. Neither does "*".
    words = ["git", "-C", "/", "config", "--get-all", "safe.directory"]
    listed = subprocess.run(words, capture_output=True, check=False).stdout.splitlines()
    if top not in listed:
        name = os.fsdecode(top)
        raise StokerError(
            f"cannot take a snapshot of {name}: that git repository is not yours alone, and git would run"
            f" what others have set there; git init makes one of your own folder, or if you trust"
            f" it: git config --global --add safe.directory {name}"
        )


def _copy(tree: _Tree, names: Iterable[bytes], inside: bytes, store: bytes) -> str:
    """Copy to a temporary folder, and rename it by a hash of the copy, which does not change."""
    folder = tempfile.mkdtemp(prefix=b".new-", dir=store)
    try:
        copied = []
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                _copy_one(os.path.join(tree.top, name), os.path.join(folder, name))
                copied.append(name)
        os.makedirs(os.path.join(folder, inside), exist_ok=True)
        identity = _identify((_describe(folder, name) for name in copied), inside)
        flush(folder, ctypes.CDLL(None).syncfs)
        _rename(folder, os.path.join(store, identity.encode()))
        flush(store, os.fsync)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return identity


def _copy_one(source: bytes, target: bytes) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return
    with open(open_plain(source), "rb") as reader, open(target, "xb") as writer:
        found = os.fstat(reader.fileno())
        copy_content(reader.fileno(), writer.fileno())
        os.utime(writer.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))
        os.fchmod(writer.fileno(), 0o555 if found.st_mode & stat.S_IXUSR else 0o444)


def copy_content(reader: int, writer: int) -> None:
    """Copy the content of an open file into another one."""
    try:
        # Shares the blocks if the file system can.
        while os.copy_file_range(reader, writer, 1 << 30):
            pass
    except OSError as error:
        if error.errno not in _NO_RANGES:
            raise
    while data := os.read(reader, _CHUNK_BYTES):
        view = memoryview(data)
        while view:
            view = view[os.write(writer, view) :]


def _describe(top: bytes, name: bytes) -> _Entry:
    path = os.path.join(top, name)
    if os.path.islink(path):
        return _Entry(name, b"l", hashlib.sha256(os.readlink(path)).digest())
    digest = hashlib.sha256()
    with open(open_plain(path), "rb") as file:
        executable = os.fstat(file.fileno()).st_mode & stat.S_IXUSR
        while data := file.read(_CHUNK_BYTES):
            digest.update(data)
    return _Entry(name, b"x" if executable else b"f", digest.digest())


def _identify(entries: Iterable[_Entry], inside: bytes) -> str:
    """Return the id of a tree. The folder of the job counts even if it is empty."""
    known = sorted(entries)
    if inside and not any(entry.path.startswith(inside + b"/") for entry in known):
        known.append(_Entry(inside, b"d"))
    whole = hashlib.sha256()
    for entry in known:
        whole.update(b"%b %d %b %b" % (entry.kind, len(entry.path), entry.path, entry.digest))
    return whole.hexdigest()[:40]


def _rename(folder: bytes, target: bytes) -> None:
    try:
        os.rename(folder, target)
    except OSError as error:
        # Another process has just made the same snapshot.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        shutil.rmtree(folder)


def flush(folder: bytes, how: Callable[[int], object]) -> None:
    """Flush a folder to the disk, before a job that needs it is acknowledged."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        how(fd)
    finally:
        os.close(fd)
