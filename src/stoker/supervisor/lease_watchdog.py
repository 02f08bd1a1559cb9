"""Lease watchdog: a process that ends jobs when the lease of their node expires.

It works even if the supervisor was killed or hangs. It only waits for the end of the lease, and opens no file
but the lease file. Standard library only, as the supervisor.
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

# The supervisor acts first, because it can report its jobs. The head gives them up two seconds later.
_DELAY_S = 0.5
_LOOK_S = 5.0


class LeaseWatchdog:
    """Watches the processes of a supervisor's jobs until both are gone."""

    def __init__(self, lease_file: LeaseFile, name: str, supervisor: int) -> None:
        self._lease_file = lease_file
        self._prefix = f"{name}:"
        self._poll = select.poll()
        self._is_supervisor_gone = False
        try:
            self._poll.register(os.pidfd_open(supervisor), select.POLLIN)
        except ProcessLookupError:
            self._is_supervisor_gone = True

    def watch(self) -> None:
        """Wait for the end of the lease, and kill what is left then."""
        while True:
            self._sleep(self._lease_file.left_s() + _DELAY_S)
            is_over = not self._lease_file.left_s()
            if not (is_over or self._is_supervisor_gone):
                continue
            left = self._find_jobs()
            if is_over:
                process_tree.send(left, signal.SIGKILL)
            if not left and self._is_supervisor_gone:
                return
            if not left:
                self._sleep(_LOOK_S)

    def _find_jobs(self) -> set[int]:
        """Return the processes of jobs, except those that finish without the head."""
        snapshot = process_tree.Snapshot()
        found = set().union(*snapshot.by_cookie(self._prefix).values())
        return {pid for pid in found if not snapshot.marks(pid).finishes}

    def _sleep(self, pause_s: float) -> None:
        """Sleep; shorter if the supervisor ends, or has ended."""
        if self._is_supervisor_gone:
            time.sleep(min(pause_s, _LOOK_S))
        else:
            self._is_supervisor_gone = bool(self._poll.poll(pause_s * 1000))


def main() -> None:
    """The arguments are the path of the lease file, the name in the cookies, and the supervisor's pid."""
    ignore_signals()
    os.closerange(3, 1 << 16)
    os.chdir("/")
    path, name, supervisor = sys.argv[1:]
    LeaseWatchdog(LeaseFile(path), name, int(supervisor)).watch()
