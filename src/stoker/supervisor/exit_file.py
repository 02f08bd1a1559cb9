"""Exit file: how jobs have ended while no supervisor watched them. It lies beside the journal.

    exit BOOT PID TICKS STATUS AT_US CPU_US .

The recorders of killed supervisors append lines, under a shared lock. A supervisor that starts reads the
file, brings what it says into its journal, and removes the file if no recorder holds it. A line without its
closing dot is torn. A missing or unreadable file says nothing: the outcome of the attempt is then unknown.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from stoker.supervisor.journal import Ending, is_at

_NEWEST_BYTES = 1 << 20
_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a job may have put something else there
_MOST_DIGITS = 18
_LAST_STATUS = 0xFFFF


class Exit(NamedTuple):
    """How a process has ended, and which one that was."""

    boot: str
    pid: int
    ticks: int
    status: int
    at_us: int
    cpu_us: int

    @property
    def ending(self) -> Ending:
        """Return it as the end of an attempt's first process."""
        return Ending(self.status, self.at_us, self.cpu_us, 0)


class ExitWriter:
    """Appends to the exit file of a journal, which exists from the first line on."""

    def __init__(self, journal: str) -> None:
        self._path = exits_path(journal)
        self._fd = -1

    def write(self, found: Exit) -> bool:
        """Append a line; False if that has to be tried again. It need not be if the folder is gone."""
        line = f"\nexit {' '.join(map(str, found))} .\n".encode(
            "ascii"
        )  # a torn line may precede it
        try:
            if self._fd < 0:
                self._open()
            return os.write(self._fd, line) == len(line)
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Let a supervisor remove the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFELY
        while self._fd < 0:
            fd = os.open(self._path, flags, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_SH)
                if is_at(fd, self._path):  # otherwise a supervisor has removed it meanwhile
                    self._fd = fd
            finally:
                if self._fd != fd:
                    os.close(fd)


class ExitReader:
    """Reads the exit file of a journal."""

    def __init__(self, journal: str) -> None:
        self._path = exits_path(journal)
        self._read_bytes = 0

    def read(self) -> list[Exit]:
        """Return what the file says: its newest lines, if it is very large."""
        try:
            with self._opened() as fd:
                self._read_bytes = os.fstat(fd).st_size
                data = os.pread(fd, _NEWEST_BYTES, max(0, self._read_bytes - _NEWEST_BYTES))
        except OSError:
            return []
        return [found for line in data.splitlines() if (found := _parse(line)) is not None]

    def find(self, boot: str, pid: int, ticks: int) -> Exit | None:
        """Return how a process has ended, if the file says so."""
        return next((each for each in self.read() if each[:3] == (boot, pid, ticks)), None)

    def remove(self) -> None:
        """Remove the file, unless a recorder holds it or has appended to it since it was read."""
        with contextlib.suppress(OSError), self._opened() as fd:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_size == self._read_bytes:
                os.unlink(self._path)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the file, if it is one."""
        fd = os.open(self._path, os.O_RDONLY | _SAFELY)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self._path)
            yield fd
        finally:
            os.close(fd)


def exits_path(journal: str) -> str:
    """Return the exit file of a journal."""
    return f"{journal}.exits"


def _parse(line: bytes) -> Exit | None:
    """Return what a line says; None if it is torn, or anything else."""
    words = line.decode("ascii", "replace").split()
    if len(words) != 8 or words[0] != "exit" or words[-1] != ".":
        return None
    if not all(
        word.isascii() and word.isdecimal() and len(word) <= _MOST_DIGITS for word in words[2:-1]
    ):
        return None
    found = Exit(words[1], *map(int, words[2:-1]))
    return found if found.status <= _LAST_STATUS else None
