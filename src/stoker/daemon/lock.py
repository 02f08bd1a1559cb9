"""One daemon per home: who holds the lock is the daemon."""

from __future__ import annotations

import fcntl
import os

from stoker.errors import StokerError


class AlreadyRunningError(StokerError):
    """Another daemon has this home."""


class Lock:
    """A lock file with the holder's pid in it, held until this process ends."""

    def __init__(self, home: str) -> None:
        self._fd = os.open(
            os.path.join(home, "daemon.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(self._fd, 20, 0).decode("ascii", "replace")
            os.close(self._fd)
            raise AlreadyRunningError(
                f"a daemon runs already (process {pid}) for {home}: stoker daemon status"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)
