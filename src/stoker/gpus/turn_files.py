"""Turn files: what each Stoker on a box tells the others about its use of GPUs, and which GPUs it waits for.

Each Stoker has one file beside the leases, and holds its flock while it lives. All users can write to the
folder, so only the owner of a file is believed, and only against this owner: a file can raise its owner's
use, and name GPUs that its owner waits for, or keeps for a reservation. It says nothing about others. Files
that are no plain files, too large or unreadable do not count.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from stoker.core.turns import decay
from stoker.gpus.folder_watch import FolderWatch
from stoker.gpus.lease import UnsafeError, check_folder, lease_folders, open_plain
from stoker.gpus.lease_holder import holding_users, locking_user

_NAME = re.compile(r"turn-\d{1,10}-[0-9a-f]{16}")
_MOST_BYTES = 8192
_MOST_ENTRIES = 4096
_MOST_FILES_OF_ONE = 16
_MOST_USE_S = 1e9
_MOST_TIME_S = 1e11  # of the Unix epoch
_MOST_GPUS = 256
_MOST_KEY = 128


class Notice(NamedTuple):
    """What a Stoker tells: its use at a time of the boot clock, how many GPUs it holds, what it waits for.

    `reserves` has the end of each GPU that is reserved in its queue now, and `reserved` the GPUs that it
    keeps for reservations of its user, with their ends. Ends are seconds of the Unix epoch.
    """

    use_s: float = 0.0
    at_s: float = 0.0
    holds: int = 0
    wants: int = 0
    gpus: frozenset[str] = frozenset()
    reserves: tuple[int, ...] = ()
    reserved: Mapping[str, int] = {}

    def use_at(self, now: float) -> float:
        """Return its use at a later time, if it has held the same number of GPUs since."""
        age_s = max(0.0, now - self.at_s)
        return decay(self.use_s, age_s) + self.holds * age_s


class OtherStoker(NamedTuple):
    """Another Stoker's file: name, owner and what it tells. One that has ended holds and wants nothing.

    What it has reserved stays told: its supervisor may keep the GPUs for the next Stoker of its user.
    """

    name: str
    uid: int
    is_alive: bool
    notice: Notice


class Changes(NamedTuple):
    """Which kinds of files have changed."""

    turns: bool = False
    leases: bool = False


class TurnBoard:
    """This Stoker's turn file, and a view of those of the others."""

    def __init__(self) -> None:
        self.uid = os.geteuid()
        self.name = f"turn-{self.uid}-{secrets.token_hex(8)}"
        self._watch = FolderWatch()
        self._fd: int | None = None
        self._file: tuple[int, int] | None = None
        self._told: bytes = b""

    def fileno(self) -> int:
        """Return a descriptor that is readable when a file has changed."""
        return self._watch.fileno()

    @property
    def is_watching(self) -> bool:
        """Whether changes are seen at once; else the files are to be read now and then."""
        return self._watch.is_active

    def watch(self) -> bool:
        """See changes from now on, if the folder exists."""
        return self._watch.begin(lease_folders()[0])

    def changes(self) -> Changes:
        """Return what has changed since the last call, without the own file."""
        names = [name for name in self._watch.read() if name != self.name]
        return Changes(
            turns=any(not name or name.startswith("turn-") for name in names),
            leases=any(not name or name.startswith("gpu-") for name in names),
        )

    def read(self, now: float) -> list[OtherStoker]:
        """Return the other Stokers of this box, also those of the own user, and those that have ended."""
        return _read_files((name for name in _names() if name != self.name), now)

    def inherit(self, now: float) -> float:
        """Remove the files of the own user's Stokers that have ended; returns the use that they told of."""
        use_s = 0.0
        for name in _names():
            other = None if name == self.name else _read_file(name, now)
            if other is None or other.is_alive or other.uid != self.uid:
                continue
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(lease_folders()[0], name))
                use_s += other.notice.use_s
        return use_s

    def publish(self, notice: Notice) -> None:
        """Tell the others. Errors are ignored: then the others do not know, and this Stoker waits longer."""
        told = json.dumps({**notice._asdict(), "gpus": sorted(notice.gpus)}).encode()
        with contextlib.suppress(OSError):
            if self._fd is None or not self._is_in_place():
                self._make()
            assert self._fd is not None
            # In one write, padded to cover the text before: a reader sees the one or the other.
            os.pwrite(self._fd, told.ljust(len(self._told)), 0)
            self._told = told

    def holders(self, keys: Iterable[str]) -> Mapping[str, int]:
        """Return the uid of the user that holds each of these GPUs, as far as the machine shows it."""
        return holding_users(keys)

    def close(self, *, keep: bool) -> None:
        """End. With `keep`, the file stays and tells of the use; the user's next Stoker takes it over."""
        self._watch.close()
        if self._fd is None:
            return
        if not keep and self._is_in_place():
            with contextlib.suppress(OSError):
                os.unlink(self._path())
        os.close(self._fd)
        self._fd = None

    def _path(self) -> str:
        return os.path.join(lease_folders()[0], self.name)

    def _is_in_place(self) -> bool:
        try:
            there = os.stat(self._path(), follow_symlinks=False)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == self._file

    def _make(self) -> None:
        """Make the file. Nobody else can open it before it is locked, so nobody else can lock it."""
        check_folder(lease_folders()[0], make=False)
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._path(), flags, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fchmod(fd, 0o644)
        found = os.fstat(fd)
        self._fd, self._file, self._told = fd, (found.st_dev, found.st_ino), b""


class UserNotice(NamedTuple):
    """What the Stokers of one user tell: their use together, and the GPUs that they wait for or reserve."""

    use_s: float = 0.0
    gpus: frozenset[str] = frozenset()
    reserved: Mapping[str, int] = {}


def read_users(now: float) -> dict[int, UserNotice]:
    """Return what the users of this box tell, by uid, for a view."""
    found: dict[int, UserNotice] = {}
    for other in _read_files(_names(), now):
        known, notice = found.get(other.uid, UserNotice()), other.notice
        found[other.uid] = UserNotice(
            known.use_s + notice.use_at(now),
            known.gpus | notice.gpus if notice.wants else known.gpus,
            {**known.reserved, **notice.reserved},
        )
    return found


def _names() -> list[str]:
    names = []
    try:
        with os.scandir(lease_folders()[0]) as entries:
            for number, entry in enumerate(entries):
                if number >= _MOST_ENTRIES:
                    break
                if _NAME.fullmatch(entry.name):
                    names.append(entry.name)
    except OSError:
        return []
    return sorted(names)


def _read_files(names: Iterable[str], now: float) -> list[OtherStoker]:
    """Read turn files, of each user only so many."""
    found: list[OtherStoker] = []
    of_user: dict[int, int] = {}
    for name in names:
        other = _read_file(name, now)
        if other is None:
            continue
        of_user[other.uid] = of_user.get(other.uid, 0) + 1
        if of_user[other.uid] <= _MOST_FILES_OF_ONE:
            found.append(other)
    return found


def _read_file(name: str, now: float) -> OtherStoker | None:
    try:
        fd = open_plain(os.path.join(lease_folders()[0], name), os.O_RDONLY)
    except (OSError, UnsafeError):
        return None
    try:
        status = os.fstat(fd)
        if status.st_size > _MOST_BYTES:
            return None
        notice = _parse(os.pread(fd, _MOST_BYTES, 0), now)
        if not _is_alive(fd, status.st_uid):
            use_s = decay(notice.use_s, now - notice.at_s)
            ended = Notice(use_s, now, reserved=notice.reserved)
            return OtherStoker(name, status.st_uid, is_alive=False, notice=ended)
        return OtherStoker(name, status.st_uid, is_alive=True, notice=notice)
    except OSError:
        return None
    finally:
        os.close(fd)


def _is_alive(fd: int, owner: int) -> bool:
    """Whether a process of the file's owner has locked it: a lock of another user is no life sign."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return locking_user(fd) in (None, owner)
    return False


def _parse(text: bytes, now: float) -> Notice:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return Notice(at_s=now)
    if not isinstance(found, dict):
        return Notice(at_s=now)
    at_s = min(now, max(0.0, _number(found.get("at_s"), now)))
    gpus, reserves, reserved = (found.get(name) for name in ("gpus", "reserves", "reserved"))
    keys = gpus[:_MOST_GPUS] if isinstance(gpus, list) else []
    ends = reserves[:_MOST_GPUS] if isinstance(reserves, list) else []
    kept = [*reserved.items()][:_MOST_GPUS] if isinstance(reserved, dict) else []
    return Notice(
        use_s=_number(found.get("use_s"), 0.0),
        at_s=at_s,
        holds=int(min(_number(found.get("holds"), 0.0), _MOST_GPUS)),
        wants=int(min(_number(found.get("wants"), 0.0), _MOST_GPUS)),
        gpus=frozenset(key for key in keys if isinstance(key, str) and len(key) <= _MOST_KEY),
        reserves=tuple(int(_number(end, 0.0, _MOST_TIME_S)) for end in ends),
        reserved={
            key: int(_number(end, 0.0, _MOST_TIME_S)) for key, end in kept if len(key) <= _MOST_KEY
        },
    )


def _number(found: Any, usual: float, most: float = _MOST_USE_S) -> float:
    if isinstance(found, bool) or not isinstance(found, int | float):
        return usual
    try:
        number = float(found)
    except OverflowError:
        return usual
    return number if math.isfinite(number) and 0.0 <= number <= most else usual
