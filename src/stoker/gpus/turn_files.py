"""Turn files: what each Stoker on a box tells the others about its use of GPUs, and which GPUs it waits for.

Each Stoker has one file beside the leases, and holds its flock while it lives. All users can write to the
folder, so only the owner of a file is believed, and only against this owner: a file can raise its owner's
use, and name GPUs that its owner waits for, or keeps for a reservation. It says nothing about others. Files
that are no plain files, too large, unreadable, or named after another user than their owner do not count.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from stoker.core.turns import decay
from stoker.gpus.folder_watch import ATTRIB, FolderChanges
from stoker.gpus.lease import UnsafeError, check_folder, lease_folders, open_plain
from stoker.gpus.lease_holder import UNSEEN, holding_users, locking_user, read_locks

_NAME = re.compile(r"turn-(\d{1,10})-[0-9a-f]{16}")
_MOST_BYTES = 1 << 15
_MOST_ENTRIES = 4096  # looked at in one reading
_MOST_NEW = 512  # files read that were not known before
_MOST_ALL = 1 << 16
_MOST_FILES_OF_ONE = 16  # that live, and as many that have ended
_TRIES = 5
_TOUCH_S = 5.0
_FRESH_S = 20.0
_LONG_LOOK_S = 0.01
_REST = 4.0
_MOST_USE_S = 1e9
_MOST_TIME_S = 1e11  # of the Unix epoch
_MOST_GPUS = 256
_MOST_KEY = 128


class Notice(NamedTuple):
    """What a Stoker tells: its use at a time of the boot clock, how many GPUs it holds, what it waits for.

    Its first job needs `needs` GPUs; `gathers` are held for it and not in use. With `is_limited`, the rules
    allow its user no more GPUs: it waits for those of the user's other Stokers.
    `reserves` has the end of each GPU that is reserved in its queue now, and `reserved` the GPUs that it
    keeps for reservations of its user, with their ends. Ends are seconds of the Unix epoch.
    """

    use_s: float = 0.0
    at_s: float = 0.0
    holds: int = 0
    wants: int = 0
    gpus: frozenset[str] = frozenset()
    needs: int = 1
    gathers: int = 0
    is_limited: bool = False
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
    is_locked: bool = True


class Changes(NamedTuple):
    """Which kinds of files have changed."""

    turns: bool = False
    leases: bool = False


class TurnBoard:
    """This Stoker's turn file, and a view of those of the others."""

    def __init__(self) -> None:
        self.uid = os.geteuid()
        self.name = f"turn-{self.uid}-{os.urandom(8).hex()}"
        self._changes = FolderChanges()
        self._files = _TurnFolder(self.name)
        self._fd: int | None = None
        self._file: tuple[int, int] | None = None
        self._told: bytes = b""
        self._touched_at = 0.0

    def fileno(self) -> int:
        """Return a descriptor that is readable when a file has changed."""
        return self._changes.fileno()

    @property
    def is_watching(self) -> bool:
        """Whether changes are seen at once; else the files are to be read now and then."""
        return self._changes.is_active

    def watch(self) -> bool:
        """See changes from now on, if the folder exists."""
        return self._changes.begin(lease_folders()[0])

    def changes(self) -> Changes:
        """Return what has changed since the last call, without the own file."""
        found = self._changes.read()
        found.pop(self.name, None)
        turns = {
            name for name, mask in found.items() if name.startswith("turn-") and mask != ATTRIB
        }
        self._files.expect(turns)
        return Changes(
            turns=bool(turns) or "" in found,
            leases=any(not name or name.startswith("gpu-") for name in found),
        )

    def read(self, now: float) -> list[OtherStoker]:
        """Return the other Stokers of this box, also those of the own user, and those that have ended."""
        with self._rest_afterwards():
            return self._files.read(now)

    def inherit(self, now: float) -> float:
        """Remove the files of the own user's Stokers that have ended; returns the use that they told of."""
        use_s = 0.0
        for other in _TurnFolder(self.name).read_all(now):
            if other.is_locked or other.uid != self.uid:
                continue
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(lease_folders()[0], other.name))
                use_s += other.notice.use_s
        return use_s

    def publish(self, notice: Notice) -> bool:
        """Tell the others; False if that is impossible: then they do not know, and this Stoker waits."""
        told = json.dumps({**notice._asdict(), "gpus": sorted(notice.gpus)}).encode()
        try:
            if self._fd is None or not self._is_in_place():
                self._make()
            assert self._fd is not None
            # In one write, padded to cover the text before: a reader sees the one or the other.
            os.pwrite(self._fd, told.ljust(len(self._told)), 0)
        except OSError:
            return False
        self._told = told
        return True

    def keep_alive(self, now: float) -> bool:
        """Show that this Stoker lives; False if its file is gone.

        The time of the file counts where the machine hides who has locked it.
        """
        if self._fd is None or not self._is_in_place():
            return False
        if now >= self._touched_at + _TOUCH_S:
            self._touched_at = now
            with contextlib.suppress(OSError):
                os.utime(self._fd)
        return True

    def holders(self, keys: Iterable[str]) -> Mapping[str, int]:
        """Return the uid of the user that holds each of these GPUs, as far as the machine shows it."""
        with self._rest_afterwards():
            return holding_users(keys)

    def close(self, *, keep: bool) -> None:
        """End. With `keep`, the file stays and tells of the use; the user's next Stoker takes it over."""
        self._changes.close()
        if self._fd is None:
            return
        if not keep and self._is_in_place():
            with contextlib.suppress(OSError):
                os.unlink(self._path())
        os.close(self._fd)
        self._fd = None

    @contextlib.contextmanager
    def _rest_afterwards(self) -> Iterator[None]:
        """Look less often where a look takes long: other users can make a thousand files or locks."""
        began = time.monotonic()
        yield
        took_s = time.monotonic() - began
        if took_s > _LONG_LOOK_S:
            self._changes.rest(_REST * took_s)

    def _path(self) -> str:
        return os.path.join(lease_folders()[0], self.name)

    def _is_in_place(self) -> bool:
        try:
            there = os.stat(self._path(), follow_symlinks=False)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == self._file

    def _make(self) -> None:
        """Make the file. No other user can open it before it is locked, so no other user can lock it.

        Another Stoker of the own user may look at it before that, and take it for one that has ended.
        """
        check_folder(lease_folders()[0], make=False)
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        for _ in range(_TRIES):
            fd = os.open(self._path(), flags, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found = os.fstat(fd)
                self._file = (found.st_dev, found.st_ino)
                if self._is_in_place():
                    os.fchmod(fd, 0o644)
                    self._fd, self._told = fd, b""
                    return
            except BlockingIOError:
                with contextlib.suppress(OSError):
                    os.unlink(self._path())
            except OSError:
                os.close(fd)
                raise
            os.close(fd)
        raise BlockingIOError


class _TurnFolder:
    """Reads the turn files of a folder: those known from before first, and some new ones each time.

    Every user can make any number of files there. So each reading looks at a bounded number of entries and
    goes on with the next ones later. A file counts only if its name tells its owner, so that a user cannot
    hide the files of another one among many.
    """

    def __init__(self, own_name: str) -> None:
        self._own_name = own_name
        self._known: list[str] = []
        self._expected: dict[str, None] = {}
        self._entries: Iterator[str] = iter(())

    def expect(self, names: Iterable[str]) -> None:
        """Note names that have changed: they are read next."""
        self._expected.update(dict.fromkeys(names))

    def read(self, now: float) -> list[OtherStoker]:
        """Return the Stokers of the known files, and of some others."""
        names = dict.fromkeys(self._known)
        names.update(dict.fromkeys(itertools.islice(self._expected, _MOST_NEW)))
        self._expected.clear()
        names.update(dict.fromkeys(self._next_names()))
        found = self._read_some(names, now)
        self._known = [other.name for other in found]
        return found

    def read_all(self, now: float) -> list[OtherStoker]:
        """Return all Stokers, up to a large number."""
        return self._read_some(itertools.islice(_list(), _MOST_ALL), now)

    def _read_some(self, names: Iterable[str], now: float) -> list[OtherStoker]:
        locks = read_locks()
        found: list[OtherStoker] = []
        of_user: Counter[tuple[int, bool]] = Counter()
        for name in names:
            other = None if name == self._own_name else _read_file(name, locks, now)
            if other is None:
                continue
            of_user[other.uid, other.is_alive] += 1
            if of_user[other.uid, other.is_alive] <= _MOST_FILES_OF_ONE:
                found.append(other)
        return found

    def _next_names(self) -> Iterator[str]:
        """Return names that are not known, where the last reading stopped; each at most once."""
        known, entries_left, left, is_second = {*self._known}, _MOST_ENTRIES, _MOST_NEW, False
        while entries_left and left:
            name = next(self._entries, None)
            if name is None:
                if is_second:
                    return
                is_second, self._entries = True, _list()
                continue
            entries_left -= 1
            if name not in known and _NAME.fullmatch(name):
                left -= 1
                yield name


class UserNotice(NamedTuple):
    """What the Stokers of one user tell: their use together, and the GPUs that they wait for or reserve."""

    use_s: float = 0.0
    gpus: frozenset[str] = frozenset()
    reserved: Mapping[str, int] = {}


def read_users(now: float) -> dict[int, UserNotice]:
    """Return what the users of this box tell, by uid, for a view."""
    found: dict[int, UserNotice] = {}
    for other in _TurnFolder("").read_all(now):
        known, notice = found.get(other.uid, UserNotice()), other.notice
        found[other.uid] = UserNotice(
            known.use_s + notice.use_at(now),
            known.gpus | notice.gpus if notice.wants else known.gpus,
            {**known.reserved, **notice.reserved},
        )
    return found


def _list() -> Iterator[str]:
    """Yield the names in the folder that could be turn files."""
    try:
        with os.scandir(lease_folders()[0]) as entries:
            for entry in entries:
                yield entry.name
    except OSError:
        return


def _read_file(name: str, locks: Mapping[tuple[int, int], int], now: float) -> OtherStoker | None:
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        fd = open_plain(os.path.join(lease_folders()[0], name), os.O_RDONLY)
    except (OSError, UnsafeError):
        return None
    try:
        status = os.fstat(fd)
        if status.st_size > _MOST_BYTES or status.st_uid != int(match[1]):
            return None
        notice = _parse(os.pread(fd, _MOST_BYTES, 0), now)
        is_locked, is_alive = _find_life(fd, status, locks)
        if not is_alive:
            use_s = decay(notice.use_s, now - notice.at_s)
            notice = Notice(use_s, now, reserved=notice.reserved)
        return OtherStoker(
            name, status.st_uid, is_alive=is_alive, notice=notice, is_locked=is_locked
        )
    except OSError:
        return None
    finally:
        os.close(fd)


def _find_life(
    fd: int, status: os.stat_result, locks: Mapping[tuple[int, int], int]
) -> tuple[bool, bool]:
    """Return whether a file is locked, and whether a living process of its owner has locked it.

    A lock of another user is no life sign. Where the process is hidden, the file must have been
    touched lately: only its owner can do that.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        uid = locking_user(fd, locks)
        is_fresh = abs(time.time() - status.st_mtime) < _FRESH_S
        return True, uid == status.st_uid or (uid == UNSEEN and is_fresh)
    return False, False


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
        needs=max(1, int(min(_number(found.get("needs"), 1.0), _MOST_GPUS))),
        gathers=int(min(_number(found.get("gathers"), 0.0), _MOST_GPUS)),
        is_limited=found.get("is_limited") is True,
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
