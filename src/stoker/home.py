"""Home: the folder with the state of a queue, on a local disk, for its owner alone."""

from __future__ import annotations

import os
import stat
import sys

from stoker.errors import StokerError

# File systems on which SQLite and flock are unreliable, or that several hosts share.
_NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "fuse",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "9p",
    "afs",
    "glusterfs",
)

_MOUNTS = "/proc/self/mountinfo"
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_ENTERABLE = stat.S_IXGRP | stat.S_IXOTH
_LOCAL_HOME = "/var/tmp/stoker-{}"  # noqa: S108 - owner and mode are checked


def find_home() -> str:
    """Return the state folder; creates it if it is missing."""
    named = os.environ.get("STOKER_HOME")
    if named:
        home = os.path.abspath(named)
        kind = _network_kind(home)
        if kind:
            raise StokerError(
                f"STOKER_HOME={named} is on a network file system ({kind}), where a database can"
                " be damaged: name a folder on a local disk"
            )
    else:
        home = _state_folder()
        kind = _network_kind(home)
        if kind:
            home = _LOCAL_HOME.format(os.getuid())
            if not os.path.lexists(home):
                sys.stderr.write(f"stoker: your home is on {kind}: state is kept in {home}\n")
    return _own(home)


def _state_folder() -> str:
    # platformdirs gives the same, but its import takes longer than the rest of `stoker add`.
    base = os.environ.get("XDG_STATE_HOME", "").strip() or os.path.expanduser("~/.local/state")
    return os.path.join(base, "stoker")


def make_folder(path: str) -> None:
    """Create a folder and its missing parents, for this user alone."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    if above != path:
        make_folder(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def _own(home: str) -> str:
    """Create a home if it is missing, and check that only this user and root can change it."""
    try:
        make_folder(home)
    except OSError as error:
        raise StokerError(
            f"cannot make the state folder {home}: {error.strerror}; name another in STOKER_HOME"
        ) from error
    found = os.lstat(home)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise StokerError(f"{home} is not a folder of yours: name another in STOKER_HOME")
    if found.st_mode & _WRITABLE:
        raise StokerError(
            f"other users can write in the state folder {home}: check that all files in it are yours,"
            f" then chmod 700 {home}, or name another in STOKER_HOME"
        )
    if not os.access(home, os.W_OK | os.X_OK):
        raise StokerError(f"the state folder {home} is not writable: name another in STOKER_HOME")
    _check_above(home)
    _check_inside(home, can_be_entered=bool(found.st_mode & _ENTERABLE))
    return home


def _check_above(home: str) -> None:
    """Refuse a home that every user could replace."""
    folder = os.path.dirname(os.path.realpath(home))
    while True:
        mode = os.stat(folder).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise StokerError(
                f"every user can replace the state folder {home}, because all may write in {folder}:"
                f" chmod +t {folder}, or name another in STOKER_HOME"
            )
        if folder == os.path.dirname(folder):
            return
        folder = os.path.dirname(folder)


def _check_inside(home: str, *, can_be_entered: bool) -> None:
    """Refuse a home with files of other users, or with files that others can write."""
    with os.scandir(home) as entries:
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if found.st_uid != os.getuid():
                from stoker.accounts import name_of

                raise StokerError(
                    f"{entry.path} belongs to {name_of(found.st_uid)}, not to you: remove it, or if"
                    f" you trust it, sudo chown -R {name_of(os.getuid())} {home}"
                )
            is_link = stat.S_ISLNK(found.st_mode)
            if can_be_entered and found.st_mode & _WRITABLE and not is_link:
                raise StokerError(
                    f"other users can write {entry.path}: check that it is unchanged, then"
                    f" chmod -R go-w {home}"
                )


def _network_kind(path: str) -> str | None:
    """Return the kind of network file system that a path is on; None if it is local."""
    path = os.path.realpath(path)
    best, kind = "", ""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
    except FileNotFoundError:
        return None
    for line in lines:
        before, _, behind = line.partition(" - ")
        point = before.split()[4].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, behind.split()[0]
    return kind if kind.startswith(_NETWORK) else None
