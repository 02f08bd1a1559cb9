"""Where Stoker keeps its state: a folder of the user's own, on a disk of this machine."""

from __future__ import annotations

import os
import stat
import sys

from stoker.errors import StokerError

# File systems on which SQLite and flock cannot be trusted, or that several hosts share.
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
_LOCAL_HOME = "/var/tmp/stoker-{}"  # noqa: S108 - owner and mode are checked


def find_home() -> str:
    """The state folder, made if need be, readable by its owner alone."""
    named = os.environ.get("STOKER_HOME")
    if named:
        home = os.path.abspath(named)
        kind = _network_kind(home)
        if kind:
            raise StokerError(
                f"STOKER_HOME={named} lies on a network file system ({kind}), where a database can"
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
    # platformdirs says the same, but takes longer to import than all the rest of `stoker add`.
    base = os.environ.get("XDG_STATE_HOME", "").strip() or os.path.expanduser("~/.local/state")
    return os.path.join(base, "stoker")


def _own(home: str) -> str:
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
    except OSError as error:
        raise StokerError(
            f"cannot make the state folder {home}: {error.strerror}; name another in STOKER_HOME"
        ) from error
    found = os.lstat(home)
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.getuid():
        raise StokerError(f"{home} is not a folder of yours: name another in STOKER_HOME")
    if not os.access(home, os.W_OK | os.X_OK):
        raise StokerError(f"the state folder {home} is not writable: name another in STOKER_HOME")
    return home


def _network_kind(path: str) -> str | None:
    """The kind of network file system a path lies on, or None on a local one."""
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
