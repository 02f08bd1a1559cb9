"""Ends jobs in time also where their shepherd cannot: it was killed, or hangs on a file system that is gone.

A process of its own that does nothing but wait for the moment until which jobs may run without word from
their head. It opens no file but the tether. Standard library only, as the shepherd.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from stoker.executors.shepherd import trees
from stoker.executors.shepherd.base import ignore_signals
from stoker.executors.shepherd.tether import Tether

# The shepherd comes first: it knows what to say of its jobs. The head gives them up two seconds after.
_LATE_S = 0.5
_LOOK_S = 5.0


class Guard:
    """Watches over the bearers of a shepherd's cookies until that is gone, and they are."""

    def __init__(self, tether: Tether, name: str, shepherd: int) -> None:
        self._tether = tether
        self._prefix = f"{name}:"
        self._poll = select.poll()
        self._is_alone = False
        try:
            self._poll.register(os.pidfd_open(shepherd), select.POLLIN)
        except ProcessLookupError:
            self._is_alone = True

    def watch(self) -> None:
        """Wait for the moment, again and again, and end what is left then."""
        while True:
            self._rest(self._tether.left_s() + _LATE_S)
            is_over = not self._tether.left_s()
            if not (is_over or self._is_alone):
                continue
            left = self._bearers()
            if is_over:
                trees.send(left, signal.SIGKILL)
            if not left and self._is_alone:
                return
            if not left:
                self._rest(_LOOK_S)

    def _rest(self, pause_s: float) -> None:
        """Sleep; not beyond the end of the shepherd, and without one not for long."""
        if self._is_alone:
            time.sleep(min(pause_s, _LOOK_S))
        else:
            self._is_alone = bool(self._poll.poll(pause_s * 1000))

    def _bearers(self) -> set[int]:
        return set().union(*trees.Snapshot().bearers(self._prefix).values())


def main() -> None:
    """The arguments are the path of the tether, the name in the cookies, and the shepherd's pid."""
    ignore_signals()
    os.closerange(3, 1 << 16)
    os.chdir("/")
    path, name, shepherd = sys.argv[1:]
    Guard(Tether(path), name, int(shepherd)).watch()
