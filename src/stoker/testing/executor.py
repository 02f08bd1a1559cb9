"""An executor without processes: it keeps the contract, and tests tell it what ends how."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from stoker.core.slot import Slot
from stoker.executors.contract import (
    Ended,
    Finished,
    Held,
    Launch,
    Lost,
    Refused,
    Released,
    Report,
    Revoked,
    Started,
    Synced,
    Unheld,
)


class FakeContext(msgspec.Struct, frozen=True):
    """What `define_context` was told."""

    env: Mapping[str, str]
    cwd: str
    shell: str


def run_until_told(_launch: Launch) -> int | None:
    """The default script: an attempt goes on until it is ended from outside."""
    return None


class FakeExecutor:
    """Launches, ends and leases as a real executor would, in memory and at once.

    `script` says for each launch with which wait status it ends by itself, at once; None lets it run
    until `end`, a signal or a kill. Lease keys in `foreign` are somebody else's. With `kept` it is
    one that outlives its client: it remembers ends until they are acknowledged, and is synced first.
    What an earlier client launched keeps its leases, but no slot: to leave that free is the client's.
    """

    def __init__(
        self,
        clock: Callable[[], float] = lambda: 0.0,
        script: Callable[[Launch], int | None] = run_until_told,
        *,
        kept: bool = False,
    ) -> None:
        self.foreign: set[str] = set()
        self.leased: set[str] = set()
        self.contexts: dict[int, FakeContext] = {}
        self.launched: list[Launch] = []
        self.acknowledged: list[str] = []
        self.revoked: list[str] = []
        self.signals: list[tuple[str, int]] = []
        self.graces: dict[str, float] = {}
        self._clock = clock
        self._script = script
        self._kept = kept
        self._slots: dict[int, Slot] = {}
        self._running: dict[str, Launch] = {}
        self._detached: dict[str, set[str]] = {}
        self._claimed: set[str] = set()
        self._inherited: set[str] = set()
        self._waiting: list[Launch] = []
        self._line: list[Launch] = []  # launched ahead
        self._offered: list[Slot] = []
        self._taken: dict[str, Slot] = {}  # by which slots what was launched ahead has been started
        self._stories: dict[str, list[Report]] = {}
        self._refusals: deque[tuple[int, str]] = deque()
        self._stubborn: set[str] = set()
        self._reports: list[Report] = []
        self._finishing = False
        self._pids = 0
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_deaf = False
        if kept:
            self._sync(fresh=True)

    @property
    def running(self) -> list[str]:
        """The keys of all attempts that are processes now, slot by slot."""
        return [launch.key for launch in sorted(self._running.values(), key=self._slots_of)]

    @property
    def queued(self) -> list[str]:
        """The keys of all attempts that wait for their slot, slot by slot; then those that wait in line."""
        return [launch.key for launch in [*_by_slot(self._waiting), *self._line]]

    @property
    def has_news(self) -> bool:
        """Whether `observe` has something to tell."""
        return bool(self._reports)

    def end(self, key: str, status: int = 0, *, max_rss_kb: int = 0) -> None:
        """Let an attempt's process end with a wait status."""
        assert key in self._running, f"attempt {key} does not run"
        self._conclude(Ended(key, status, self._now_us(), 0, max_rss_kb))

    def lose(self, key: str, reason: str = "nobody watched it") -> None:
        """Let an attempt's process end without a witness."""
        assert key in self._running, f"attempt {key} does not run"
        self._conclude(Lost(key, reason))

    def refuse_next(self, errno: int, reason: str) -> None:
        """Let the next start fail; called again, the one after it too."""
        self._refusals.append((errno, reason))

    def ignore_signals(self, key: str) -> None:
        """Let an attempt survive every signal but a kill."""
        self._stubborn.add(key)

    def say(self, *reports: Report) -> None:
        """Report whatever a test wants heard, true or not."""
        for report in reports:
            self._tell(report)

    def lose_client(self) -> None:
        """Be left by the client and found by the next one, to whom all that is not acknowledged is told."""
        self._sync(fresh=False)

    def begin_anew(self) -> None:
        """Be killed and started again: what runs is found, and has its leases for itself.

        What the client says before it has heard of that goes nowhere.
        """
        self._sync(fresh=True)
        self._is_deaf = True

    def fileno(self) -> int:
        """Return a descriptor that is readable while there is news."""
        return self._wake

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Take note of the slots."""
        self._slots.update((slot.index, slot) for slot in slots)

    def define_context(self, number: int, env: Mapping[str, str], cwd: str, shell: str) -> None:
        """Take note of a context."""
        self.contexts[number] = FakeContext(dict(env), cwd, shell)

    def hold(self, slot: int) -> None:
        """Lease all GPUs of a slot, or none."""
        if self._is_deaf:
            return
        for key in self._slots[slot].keys:
            if key in self.foreign or key in self._inherited:
                self._tell(Unheld(slot, key, None))
                return
        self._claimed.update(self._slots[slot].keys)
        self.leased.update(self._slots[slot].keys)
        self._tell(Held(slot))

    def release(self, slot: int, gpu_keys: Sequence[str]) -> None:
        """Give leases back."""
        if self._is_deaf:
            return
        self._claimed.difference_update(gpu_keys)
        self._keep_needed_leases()
        self._tell(Released(slot))

    def offer(self, slots: Sequence[Slot]) -> None:
        """Let these slots take what is launched ahead."""
        if not self._is_deaf:
            self._offered = [*slots]
            self._start_waiting()

    def launch(self, launches: Sequence[Launch]) -> None:
        """Start attempts, or queue them behind others of their slots; only on GPUs that are leased."""
        for launch in () if self._is_deaf else launches:
            missing = self._keys_of(launch) - self.leased
            assert not missing, f"{launch.key} is launched on {missing}, which nobody has leased"
            assert launch.context == 0 or launch.context in self.contexts, launch
            if self._kept and launch.key in self._stories:
                continue
            assert launch.key not in [*self.running, *self.queued], f"{launch.key} is there already"
            self.launched.append(launch)
            (self._line if launch.ahead else self._waiting).append(launch)
        self._start_waiting()

    def observe(self) -> list[Report]:
        """Tell what has happened since the last call."""
        self._is_deaf = False
        if self._reports:
            os.eventfd_read(self._wake)
        reports, self._reports = self._reports, []
        return reports

    def acknowledge(self, keys: Sequence[str]) -> None:
        """Forget these ends."""
        self.acknowledged += keys
        for key in () if self._is_deaf else keys:
            if key not in self._running:
                self._stories.pop(key, None)

    def revoke(self, key: str) -> None:
        """Take back an attempt that has not started."""
        for launch in [*self._waiting, *self._line]:
            if launch.key == key:
                (self._line if launch.ahead else self._waiting).remove(launch)
                self.revoked.append(key)
                self._tell(Revoked(key))
                return

    def signal(self, key: str, signum: int, grace_s: float | None = None) -> None:
        """End an attempt by a signal, unless it ignores signals; stopped and continued it lives on."""
        if key in self._running and not self._is_deaf:
            self.signals.append((key, signum))
            if grace_s is not None:
                self.graces[key] = grace_s
            if key not in self._stubborn and signum not in (signal.SIGSTOP, signal.SIGCONT):
                self.end(key, signum)

    def kill(self, key: str) -> None:
        """End an attempt whatever it does."""
        if key in self._running and not self._is_deaf:
            self.signals.append((key, signal.SIGKILL))
            self.end(key, signal.SIGKILL)

    def finish(self) -> None:
        """Tell when nothing runs any more."""
        self._finishing = True
        self._tell_if_finished()

    def stop(self, kill: bool) -> list[Report]:
        """End everything if asked to, as the executor of a daemon does."""
        for key in self.running if kill else ():
            self.kill(key)
        return self.observe()

    def close(self) -> None:
        """Forget everything that runs."""
        self._running.clear()
        self._waiting.clear()
        self._line.clear()
        os.close(self._wake)

    def _sync(self, *, fresh: bool) -> None:
        self.observe()
        for key, launch in self._running.items():
            self._detached.setdefault(key, self._keys_of(launch))
        self._claimed.clear()
        self._inherited |= set().union(*self._detached.values()) if fresh else set()
        self._keep_needed_leases()
        self._waiting.clear()
        self._line.clear()
        self._offered.clear()
        for story in self._stories.values():
            for report in story:
                again = isinstance(report, Started) and report.slot is not None
                self._tell(msgspec.structs.replace(report, slot=None) if again else report)
        self._tell(Synced(frozenset(self._stories), fresh))

    def _keep_needed_leases(self) -> None:
        in_use = set().union(*self._detached.values())
        self._inherited &= in_use
        self.leased &= self._claimed | in_use

    def _keys_of(self, launch: Launch) -> set[str]:
        taken_by = self._taken.get(launch.key)
        if taken_by is not None:
            return set(taken_by.keys)
        return {key for slot in launch.slots for key in self._slots[slot].keys}

    def _start_waiting(self) -> None:
        """Start what has all its slots for itself, those ordered earlier first."""
        again = True
        while again:
            again = False
            ours = (each for key, each in self._running.items() if key not in self._detached)
            taken = {slot for launch in ours for slot in self._slots_of(launch)}
            for launch in list(self._waiting):
                if taken.isdisjoint(launch.slots):
                    self._waiting.remove(launch)
                    self._start(launch)
                    again = launch.key not in self._running
                taken.update(launch.slots)
                if again:
                    break
            again = again or self._take_from_line(taken)
        self._tell_if_finished()

    def _take_from_line(self, taken: set[int]) -> bool:
        """Start what is first in line on an offered slot that is vacant; whether there is one."""
        vacant = [slot for slot in self._offered if slot.index not in taken]
        if not vacant or not self._line:
            return False
        launch = self._line.pop(0)
        self._taken[launch.key] = vacant[0]
        missing = set(vacant[0].keys) - self.leased
        assert not missing, f"{launch.key} is taken by {vacant[0]}, which nobody has leased"
        self._start(launch)
        return True

    def _slots_of(self, launch: Launch) -> tuple[int, ...]:
        taken_by = self._taken.get(launch.key)
        return launch.slots if taken_by is None else (taken_by.index,)

    def _start(self, launch: Launch) -> None:
        if self._refusals:
            self._taken.pop(launch.key, None)
            self._remember(Refused(launch.key, *self._refusals.popleft()))
            return
        for gpu in self._keys_of(launch):
            known = [
                self._detached.get(key) or self._keys_of(it) for key, it in self._running.items()
            ]
            room = sum(gpu in slot.keys for slot in self._slots.values())
            taken = sum(gpu in keys for keys in known)
            assert taken < room, f"{launch.key} is started on {gpu}, where another one lives on"
        self._pids += 1
        self._running[launch.key] = launch
        told = Started(launch.key, self._pids, self._now_us(), self._clock())
        if launch.ahead:
            slot = self._taken[launch.key]
            told = msgspec.structs.replace(told, slot=slot.index, place=slot.label)
        self._remember(told)
        status = self._script(launch)
        if status is not None:
            del self._running[launch.key]
            self._remember(Ended(launch.key, status, self._now_us(), 0, 0))

    def _conclude(self, report: Ended | Lost) -> None:
        del self._running[report.key]
        if self._detached.pop(report.key, None) is not None:
            self._keep_needed_leases()
        self._remember(report)
        self._start_waiting()

    def _remember(self, report: Started | Refused | Ended | Lost) -> None:
        if self._kept:
            self._stories.setdefault(report.key, []).append(report)
        self._tell(report)

    def _now_us(self) -> int:
        return round(self._clock() * 1e6)

    def _tell_if_finished(self) -> None:
        if self._finishing and not (self._running or self._waiting or self._line):
            self._finishing = False
            self._tell(Finished())

    def _tell(self, report: Report) -> None:
        self._reports.append(report)
        os.eventfd_write(self._wake, 1)


def _by_slot(launches: Iterable[Launch]) -> list[Launch]:
    return sorted(launches, key=lambda launch: launch.slots)
