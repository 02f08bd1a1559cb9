"""Ends jobs when their lease is over, also if their supervisor was killed or hangs.

A process of its own that does nothing but wait for the moment until which jobs may run without word from
their head. It opens no file but the lease file. Standard library only, as the supervisor.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from stoker.supervisor import process_tree
from stoker.supervisor.lease_file import LeaseFile
from stoker.supervisor.signals import ignore_signals

# The supervisor comes first: it knows what to say of its jobs. The head gives them up two seconds after.
_LATE_S = 0.5
_LOOK_S = 5.0


class LeaseWatchdog:
    """Watches over the bearers of a supervisor's cookies until that is gone, and they are."""

    def __init__(self, lease_file: LeaseFile, name: str, supervisor: int) -> None:
        self._lease_file = lease_file
        self._prefix = f"{name}:"
        self._poll = select.poll()
        self._is_alone = False
        try:
            self._poll.register(os.pidfd_open(supervisor), select.POLLIN)
        except ProcessLookupError:
            self._is_alone = True

    def watch(self) -> None:
        """Wait for the moment, again and again, and end what is left then."""
        while True:
            self._rest(self._lease_file.left_s() + _LATE_S)
            is_over = not self._lease_file.left_s()
            if not (is_over or self._is_alone):
                continue
            left = self._bearers()
            if is_over:
                process_tree.send(left, signal.SIGKILL)
            if not left and self._is_alone:
                return
            if not left:
                self._rest(_LOOK_S)

    def _rest(self, pause_s: float) -> None:
        """Sleep; not beyond the end of the supervisor, and without one not for long."""
        if self._is_alone:
            time.sleep(min(pause_s, _LOOK_S))
        else:
            self._is_alone = bool(self._poll.poll(pause_s * 1000))

    def _bearers(self) -> set[int]:
        return set().union(*process_tree.Snapshot().bearers(self._prefix).values())


def main() -> None:
    """The arguments are the path of the lease file, the name in the cookies, and the supervisor's pid."""
    ignore_signals()
    os.closerange(3, 1 << 16)
    os.chdir("/")
    path, name, supervisor = sys.argv[1:]
    LeaseWatchdog(LeaseFile(path), name, int(supervisor)).watch()
