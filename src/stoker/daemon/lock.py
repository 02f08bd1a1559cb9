"""One daemon per home: who holds the lock is the daemon."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from stoker.errors import StokerError


class AlreadyRunningError(StokerError):
    """Another daemon has this home."""


class Lock:
    """A lock file with the holder's pid in it, held until this process ends."""

    def __init__(self, home: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(os.path.join(home, "daemon.lock"), flags, 0o600)
        if not self._take():
            pid = os.pread(self._fd, 20, 0).decode("ascii", "replace")
            os.close(self._fd)
            raise AlreadyRunningError(
                f"a daemon runs already (process {pid}) for {home}: stoker daemon status"
            )
        with contextlib.suppress(OSError):  # on a full disk nobody learns the number
            os.ftruncate(self._fd, os.pwrite(self._fd, str(os.getpid()).encode(), 0))

    def _take(self) -> bool:
        # More than once: somebody may just be looking whether it is held.
        for pause_s in (0.01, 0.02, 0.0):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(pause_s)
            else:
                return True
        return False
