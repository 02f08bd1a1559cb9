"""An executor without processes: it keeps the contract, and tests tell it what ends how."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Sequence

from stoker.core.slot import Slot
from stoker.executors.contract import (
    Ended,
    Finished,
    Held,
    Launch,
    Refused,
    Released,
    Report,
    Revoked,
    Started,
    Unheld,
)


def run_until_told(_launch: Launch) -> int | None:
    """The default script: an attempt goes on until it is ended from outside."""
    return None


class FakeExecutor:
    """Launches, ends and leases as a real executor would, in memory and at once.

    `script` says for each launch with which wait status it ends by itself, at once; None lets it run
    until `end`, a signal or a kill. Lease keys in `foreign` are somebody else's.
    """

    def __init__(
        self,
        clock: Callable[[], float] = lambda: 0.0,
        script: Callable[[Launch], int | None] = run_until_told,
    ) -> None:
        self.foreign: set[str] = set()
        self.leased: set[str] = set()
        self.launched: list[Launch] = []
        self.revoked: list[str] = []
        self.signals: list[tuple[str, int]] = []
        self._clock = clock
        self._script = script
        self._slots: dict[int, Slot] = {}
        self._lines: dict[int, deque[Launch]] = {}
        self._refusals: deque[tuple[int, str]] = deque()
        self._stubborn: set[str] = set()
        self._reports: list[Report] = []
        self._finishing = False
        self._pids = 0
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    @property
    def running(self) -> list[str]:
        """The keys of all attempts that are processes now, slot by slot."""
        return [line[0].key for line in self._lines.values() if line]

    @property
    def queued(self) -> list[str]:
        """The keys of all attempts that wait for their slot."""
        return [launch.key for line in self._lines.values() for launch in [*line][1:]]

    @property
    def has_news(self) -> bool:
        """Whether `observe` has something to tell."""
        return bool(self._reports)

    def end(self, key: str, status: int = 0) -> None:
        """Let an attempt's process end with a wait status."""
        for line in self._lines.values():
            if line and line[0].key == key:
                line.popleft()
                self._tell(Ended(key, status, self._now_us(), 0, 0))
                self._start_next(line)
                return
        raise AssertionError(f"attempt {key} does not run")

    def refuse_next(self, errno: int, reason: str) -> None:
        """Let the next start fail; called again, the one after it too."""
        self._refusals.append((errno, reason))

    def ignore_signals(self, key: str) -> None:
        """Let an attempt survive every signal but a kill."""
        self._stubborn.add(key)

    def fileno(self) -> int:
        """Return a descriptor that is readable while there is news."""
        return self._wake

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Take note of the slots."""
        for slot in slots:
            self._slots[slot.index] = slot
            self._lines[slot.index] = deque()

    def hold(self, slot: int) -> None:
        """Lease all GPUs of a slot, or none."""
        for key in self._slots[slot].keys:
            if key in self.foreign:
                self._tell(Unheld(slot, key, None))
                return
        self.leased.update(self._slots[slot].keys)
        self._tell(Held(slot))

    def release(self, slot: int, gpu_keys: Sequence[str]) -> None:
        """Give leases back."""
        self.leased.difference_update(gpu_keys)
        self._tell(Released(slot))

    def launch(self, launches: Sequence[Launch]) -> None:
        """Start attempts, or queue them behind others of their slots; only on GPUs that are leased."""
        for launch in launches:
            missing = set(self._slots[launch.slot].keys) - self.leased
            assert not missing, f"{launch.key} is launched on {missing}, which nobody has leased"
            assert launch.key not in [*self.running, *self.queued], f"{launch.key} is there already"
            self.launched.append(launch)
            line = self._lines[launch.slot]
            line.append(launch)
            if len(line) == 1:
                self._start_next(line)

    def observe(self) -> list[Report]:
        """Tell what has happened since the last call."""
        if self._reports:
            os.eventfd_read(self._wake)
        reports, self._reports = self._reports, []
        return reports

    def revoke(self, key: str) -> None:
        """Take back an attempt that has not started."""
        for line in self._lines.values():
            for launch in [*line][1:]:
                if launch.key == key:
                    line.remove(launch)
                    self.revoked.append(key)
                    self._tell(Revoked(key))

    def signal(self, key: str, signum: int) -> None:
        """End an attempt by a signal, unless it ignores signals."""
        if key in self.running:
            self.signals.append((key, signum))
            if key not in self._stubborn:
                self.end(key, signum)

    def kill(self, key: str) -> None:
        """End an attempt whatever it does."""
        if key in self.running:
            self.signals.append((key, signal.SIGKILL))
            self.end(key, signal.SIGKILL)

    def finish(self) -> None:
        """Tell when nothing runs any more."""
        self._finishing = True
        self._tell_if_finished()

    def close(self) -> None:
        """Forget everything that runs."""
        self._lines.clear()
        os.close(self._wake)

    def _start_next(self, line: deque[Launch]) -> None:
        while line:
            launch = line[0]
            if self._refusals:
                line.popleft()
                self._tell(Refused(launch.key, *self._refusals.popleft()))
                continue
            self._pids += 1
            self._tell(Started(launch.key, self._pids, self._now_us()))
            status = self._script(launch)
            if status is None:
                return
            line.popleft()
            self._tell(Ended(launch.key, status, self._now_us(), 0, 0))
        self._tell_if_finished()

    def _now_us(self) -> int:
        return round(self._clock() * 1e6)

    def _tell_if_finished(self) -> None:
        if self._finishing and not self.running:
            self._tell(Finished())

    def _tell(self, report: Report) -> None:
        self._reports.append(report)
        os.eventfd_write(self._wake, 1)
