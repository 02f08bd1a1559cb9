"""Private folder for Ray's files and sockets.

Ray gives mode 0777 to its folder and to the folders below it. Any user who reaches them can replace
Ray's sockets and plant links. So Ray's folder is always inside a folder of mode 0700:

    <home>/cluster/ray               if that path is short enough for Ray's sockets
    <tmp>/stoker-UID-RANDOM/ray      else; <home>/cluster/ray is a link to it

Another user cannot take the random name in advance.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile

from stoker.cluster.settings import make_folder
from stoker.errors import StokerError

# A socket's path has at most 107 bytes, and Ray appends its session and file names.
_MAX_PATH_BYTES = 40
_RANDOM_CHARS = 8  # of tempfile.mkdtemp


def prepare_ray_folder(home: str) -> str:
    """Return the path of Ray's folder, which exists and which no other user can reach.

    Call this before every start of Ray, because /tmp may have been emptied. Raises StokerError if there
    can be no such folder.
    """
    path = os.path.join(make_folder(home), "ray")
    target = _read_link(path)
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        if target is not None:
            os.unlink(path)  # left from when the home had a longer path
        return _make_inner(path)
    if target is not None and _is_ours(target):
        return _make_inner(target)
    outer = tempfile.mkdtemp(prefix=_prefix(), dir=_short_temp_folder())
    made = _make_inner(os.path.join(outer, "ray"))
    _replace_link(path, made)
    return made


def remove_ray_folder(home: str) -> None:
    """Remove Ray's files, including its logs."""
    path = os.path.join(make_folder(home), "ray")
    target = _read_link(path)
    if target is None:
        shutil.rmtree(path, ignore_errors=True)
        return
    if _is_ours(target):
        shutil.rmtree(os.path.dirname(target), ignore_errors=True)
    os.unlink(path)


def _make_inner(path: str) -> str:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise StokerError(f"{path} is not a folder of yours: move it away")
    return path


def _is_ours(path: str) -> bool:
    """Whether a path has the form that this module creates, inside a folder that is private to us."""
    outer, name = os.path.split(path)
    if name != "ray" or not os.path.basename(outer).startswith(_prefix()):
        return False
    try:
        found = os.lstat(outer)
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not stat.S_IMODE(found.st_mode) & 0o077
    )


def _prefix() -> str:
    return f"stoker-{os.getuid()}-"


def _short_temp_folder() -> str:
    """Return the user's folder for temporary files if its path is short and it is safe, else /tmp."""
    wanted = tempfile.gettempdir()
    rest = len(f"/{_prefix()}/ray") + _RANDOM_CHARS
    if len(os.fsencode(wanted)) + rest <= _MAX_PATH_BYTES and _keeps_folders(wanted):
        return wanted
    return "/tmp"  # noqa: S108 - the folder in it has a random name and mode 0700


def _keeps_folders(path: str) -> bool:
    """Whether other users cannot rename or remove our folders in this folder."""
    found = os.stat(path)
    is_shared = bool(found.st_mode & 0o022)
    return found.st_uid in (0, os.getuid()) and (not is_shared or bool(found.st_mode & 0o1000))


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _replace_link(path: str, target: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)  # Ray's files from when the home had a shorter path
    fresh = f"{path}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh)
    os.symlink(target, fresh)
    os.replace(fresh, path)
