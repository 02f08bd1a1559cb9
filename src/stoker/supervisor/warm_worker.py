"""Warm worker as its supervisor sees it: a process that imports modules and then forks jobs."""

from __future__ import annotations

import array
import contextlib
import enum
import os
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from stoker.supervisor.slot_queues import Attempt
from stoker.warm import messages

if TYPE_CHECKING:
    from stoker.warm.messages import FileStamp, ForkJob

WORTH = 0.25
"""Part of a worker's imports: if its forks import for longer themselves, it is replaced."""
_FORK_TIMEOUT_S = 10.0


class NoWarmStartError(Exception):
    """An attempt cannot be forked, for the reason given; no process of it runs."""


class WorkerState(enum.Enum):
    """How far a worker has come."""

    IMPORTING = enum.auto()
    READY = enum.auto()
    HAS_FORKED = enum.auto()


class WarmWorker:
    """A process that imports modules and then forks jobs, with the attempts that wait for it.

    `asked_by` is the attempt for which it was started.
    """

    def __init__(
        self,
        pid: int,
        asked_by: Attempt,
        connection: socket.socket,
        env: dict[bytes, bytes],
        used_at: float,
    ) -> None:
        self.pid = pid
        self.asked_by = asked_by
        self.connection = connection
        self.env = env
        self.used_at = used_at
        self.state = WorkerState.IMPORTING
        self.started_at = used_at
        self.import_s = 0.0
        self._learned: FileStamp | None = None  # the last state of that file that was looked at
        self.learned_s = 0.0  # what the learned imports took that it makes itself
        self.modules: list[str] = []
        self.stamps: list[FileStamp] = []
        self.waiting: list[Attempt] = []

    @property
    def can_fork(self) -> bool:
        """Whether its imports are done."""
        return self.state is not WorkerState.IMPORTING

    def take_learned(self, learned: str | None) -> None:
        """Note that it makes the imports of this file, as far as the file has them now."""
        self._learned = messages.stamp_file(learned or "")
        self.learned_s = messages.read_learned(learned)["seconds"]

    def lacks(self, learned: str | None) -> bool:
        """Whether a run has learned of imports that take longer than those of a new worker are worth."""
        stamp = messages.stamp_file(learned or "")
        if stamp is None or stamp == self._learned:
            return False
        self._learned = stamp
        late = messages.read_learned(learned)
        more_s = late["seconds"] - self.learned_s
        if not self.can_fork:
            return more_s > WORTH * self.learned_s
        return bool(late["modules"]) and (not self.modules or more_s > WORTH * self.import_s)

    def is_outdated(self) -> bool:
        """Whether a file that it has imported has changed since."""
        return any(messages.stamp_file(stamp[0]) != stamp for stamp in self.stamps)

    def fork(
        self, order: ForkJob, fds: list[int], place: Callable[[int], None] | None = None
    ) -> int:
        """Fork a job and return its pid. After a NoWarmStartError there is no job and none will come.

        `place` gets the pid before the job runs.
        """
        ours, theirs = socket.socketpair()
        with ours:
            ours.settimeout(_FORK_TIMEOUT_S)
            try:
                with theirs:
                    passed = array.array("i", [theirs.fileno(), *fds])
                    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)]
                    self.connection.sendmsg([messages.encode(order)], rights)
                pid = ours.recv(32)
                if pid:
                    if place is not None:
                        place(int(pid))
                    ours.send(messages.START)
                    return int(pid)
            except OSError as error:
                raise NoWarmStartError(f"its warm worker does not answer ({error})") from error
        raise NoWarmStartError("its warm worker was killed")

    def end(self) -> None:
        """Kill the worker; jobs that it has forked go on."""
        self.connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
