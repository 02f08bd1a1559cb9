"""An executor without processes: it keeps the contract, and tests decide how attempts end."""

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
    """The arguments of `define_context`."""

    env: Mapping[str, str]
    cwd: str
    shell: str


def run_until_ended(_launch: Launch) -> int | None:
    """The default script: an attempt runs until a test ends it."""
    return None


class FakeExecutor:
    """Launches, ends and leases like a real executor, in memory and at once.

    `script` returns the wait status with which a launch ends at once; None lets it run until `end`, a
    signal or a kill. Lease keys in `foreign` belong to other processes. A `persistent` executor outlives its
    client: it remembers ends until they are acknowledged, and sends Synced first. Attempts of an earlier
    client keep their leases, but no slot: the client must leave that slot free.
    """

    def __init__(
        self,
        clock: Callable[[], float] = lambda: 0.0,
        script: Callable[[Launch], int | None] = run_until_ended,
        *,
        persistent: bool = False,
    ) -> None:
        self.foreign: set[str] = set()
        self.leased: set[str] = set()
        self.contexts: dict[int, FakeContext] = {}
        self.launched: list[Launch] = []
        self.acknowledged: list[str] = []
        self.revoked: list[str] = []
        self.signals: list[tuple[str, int]] = []
        self.moves: list[tuple[str, tuple[int, ...] | None]] = []
        self.limits: list[tuple[str, int]] = []
        self.graces: dict[str, float] = {}
        self._clock = clock
        self._script = script
        self._persistent = persistent
        self._slots: dict[int, Slot] = {}
        self._running: dict[str, Launch] = {}
        self._detached: dict[str, set[str]] = {}
        self._claimed: set[str] = set()
        self._gathered: dict[int, tuple[str, ...]] = {}  # of slots that are not complete
        self._reserved: dict[str, float] = {}
        self._inherited: set[str] = set()
        self._waiting: list[Launch] = []
        self._ahead: list[Launch] = []  # launched ahead of a free slot
        self._offered: list[Slot] = []
        self._taken: dict[str, Slot] = {}  # slots of attempts that were launched ahead
        self._history: dict[str, list[Report]] = {}
        self._refusals: deque[tuple[int, str]] = deque()
        self._ignoring_signals: set[str] = set()
        self._reports: list[Report] = []
        self._finishing = False
        self._pids = 0
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ignores_client = False
        if persistent:
            self._sync(fresh=True)

    @property
    def running(self) -> list[str]:
        """Keys of all running attempts, by slot."""
        return [launch.key for launch in sorted(self._running.values(), key=self._slots_of)]

    @property
    def queued(self) -> list[str]:
        """Keys of all attempts that wait for their slot, by slot; then those launched ahead."""
        return [launch.key for launch in [*_by_slot(self._waiting), *self._ahead]]

    @property
    def keys_in_use(self) -> set[str]:
        """Lease keys of the GPUs of all running attempts."""
        return {key for launch in self._running.values() for key in self._keys_of(launch)}

    @property
    def has_reports(self) -> bool:
        """Whether `observe` has reports."""
        return bool(self._reports)

    def end(
        self,
        key: str,
        status: int = 0,
        *,
        max_rss_kb: int = 0,
        gpu_peak_bytes: int = 0,
        over_mem_bytes: int = 0,
    ) -> None:
        """End an attempt with a wait status; `gpu_peak_bytes` is its own report.

        With `over_mem_bytes` it was killed because it used so much RAM.
        """
        assert key in self._running, f"attempt {key} does not run"
        ended = Ended(
            key,
            status,
            self._now_us(),
            0,
            max_rss_kb,
            gpu_peak_bytes=gpu_peak_bytes,
            over_mem_bytes=over_mem_bytes,
        )
        self._conclude(ended)

    def lose(self, key: str, reason: str = "its end was not seen") -> None:
        """End an attempt so that its wait status is unknown."""
        assert key in self._running, f"attempt {key} does not run"
        self._conclude(Lost(key, reason))

    def refuse_next(self, errno: int, reason: str) -> None:
        """Refuse the next start; repeated calls refuse further ones."""
        self._refusals.append((errno, reason))

    def ignore_signals(self, key: str) -> None:
        """Let an attempt survive every signal except a kill."""
        self._ignoring_signals.add(key)

    def report(self, *reports: Report) -> None:
        """Send any reports, true or not."""
        for report in reports:
            self._send(report)

    def lose_client(self) -> None:
        """Change to a new client, which gets all reports that are not acknowledged."""
        self._sync(fresh=False)

    def restart(self) -> None:
        """Restart as if killed: attempts still run and keep their leases.

        Calls of the client have no effect until it observes the restart.
        """
        self._sync(fresh=True)
        self._ignores_client = True

    def fileno(self) -> int:
        """Return a descriptor that is readable while there are reports."""
        return self._wake

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Remember the slots."""
        self._slots.update((slot.index, slot) for slot in slots)

    def define_context(self, number: int, env: Mapping[str, str], cwd: str, shell: str) -> None:
        """Remember a context."""
        self.contexts[number] = FakeContext(dict(env), cwd, shell)

    def hold(self, slot: int, *, gather: bool = False) -> None:
        """Lease all GPUs of a slot, or none; with `gather` those that can be had."""
        if self._ignores_client:
            return
        keys = self._slots[slot].keys
        taken = [key for key in keys if key in self.foreign or key in self._inherited]
        if taken and not gather:
            gathered = self._gathered.pop(slot, ())
            self._claimed.difference_update(gathered)
            self._keep_needed_leases()
            self._send(Unheld(slot, taken[0], None))
            return
        free = tuple(key for key in keys if key not in taken)
        self._claimed.update(free)
        self.leased.update(free)
        if taken:
            self._gathered[slot] = free
            self._send(Unheld(slot, taken[0], None, None, free))
            return
        self._gathered.pop(slot, None)
        self._send(Held(slot))

    def release(self, slot: int, gpu_keys: Sequence[str]) -> None:
        """Give leases back."""
        if self._ignores_client:
            return
        self._claimed.difference_update(gpu_keys)
        self._gathered.pop(slot, None)
        self._keep_needed_leases()
        self._send(Released(slot))

    def reserve(self, leases: Mapping[str, float]) -> None:
        """Keep leases when the client is gone."""
        if not self._ignores_client:
            self._reserved = dict(leases)
            self._keep_needed_leases()

    def offer(self, slots: Sequence[Slot]) -> None:
        """Let these slots start attempts that are launched ahead."""
        if not self._ignores_client:
            self._offered = [*slots]
            self._start_waiting()

    def launch(self, launches: Sequence[Launch]) -> None:
        """Start attempts, or queue them behind others of their slots; only on GPUs that are leased."""
        for launch in () if self._ignores_client else launches:
            missing = self._keys_of(launch) - self.leased
            assert not missing, f"{launch.key} is launched on {missing}, which are not leased"
            assert launch.context == 0 or launch.context in self.contexts, launch
            if self._persistent and launch.key in self._history:
                continue
            assert launch.key not in [*self.running, *self.queued], f"{launch.key} is there already"
            self.launched.append(launch)
            (self._ahead if launch.ahead else self._waiting).append(launch)
        self._start_waiting()

    def observe(self) -> list[Report]:
        """Return the reports since the last call."""
        self._ignores_client = False
        if self._reserved:
            self._keep_needed_leases()  # the time of some may be over
        if self._reports:
            os.eventfd_read(self._wake)
        reports, self._reports = self._reports, []
        return reports

    def acknowledge(self, keys: Sequence[str]) -> None:
        """Forget these ends."""
        self.acknowledged += keys
        for key in () if self._ignores_client else keys:
            if key not in self._running:
                self._history.pop(key, None)

    def revoke(self, key: str) -> None:
        """Revoke an attempt that has not started."""
        for launch in [*self._waiting, *self._ahead]:
            if launch.key == key:
                (self._ahead if launch.ahead else self._waiting).remove(launch)
                self.revoked.append(key)
                self._send(Revoked(key))
                return

    def move(self, key: str, slots: tuple[int, ...] | None) -> None:
        """Note that an attempt left its slots, or occupies these."""
        if key in self._running and not self._ignores_client:
            self.moves.append((key, slots))
            launch = self._running[key]
            self._running[key] = msgspec.structs.replace(launch, slots=slots or ())
            self._start_waiting()

    def limit(self, key: str, mem_bytes: int) -> None:
        """Note the limit."""
        self.limits.append((key, mem_bytes))

    def signal(
        self, key: str, signum: int, grace_s: float | None = None, *, main_only: bool = False
    ) -> None:
        """End an attempt by a signal, unless it ignores signals; SIGSTOP and SIGCONT do not end it."""
        del main_only  # an attempt of this executor is one process
        if key in self._running and not self._ignores_client:
            self.signals.append((key, signum))
            if grace_s is not None:
                self.graces[key] = grace_s
            if key not in self._ignoring_signals and signum not in (signal.SIGSTOP, signal.SIGCONT):
                self.end(key, signum)

    def kill(self, key: str) -> None:
        """End an attempt in any case."""
        if key in self._running and not self._ignores_client:
            self.signals.append((key, signal.SIGKILL))
            self.end(key, signal.SIGKILL)

    def finish(self) -> None:
        """Send Finished when nothing runs."""
        self._finishing = True
        self._send_if_finished()

    def stop(self, kill: bool) -> list[Report]:
        """Optionally kill everything, like the executor of a daemon."""
        for key in self.running if kill else ():
            self.kill(key)
        return self.observe()

    def close(self) -> None:
        """Forget all attempts."""
        self._running.clear()
        self._waiting.clear()
        self._ahead.clear()
        os.close(self._wake)

    def _sync(self, *, fresh: bool) -> None:
        self.observe()
        for key, launch in self._running.items():
            self._detached.setdefault(key, self._keys_of(launch))
        self._claimed.clear()
        self._gathered.clear()
        self._reserved = {} if fresh else self._reserved
        self._inherited |= set().union(*self._detached.values()) if fresh else set()
        self._keep_needed_leases()
        self._waiting.clear()
        self._ahead.clear()
        self._offered.clear()
        for reports in self._history.values():
            for report in reports:
                again = isinstance(report, Started) and report.slot is not None
                self._send(msgspec.structs.replace(report, slot=None) if again else report)
        self._send(Synced(frozenset(self._history), fresh))

    def _keep_needed_leases(self) -> None:
        in_use = set().union(*self._detached.values())
        self._inherited &= in_use
        in_use |= {key for key, until in self._reserved.items() if until > self._clock()}
        self.leased &= self._claimed | in_use

    def _keys_of(self, launch: Launch) -> set[str]:
        taken_by = self._taken.get(launch.key)
        if taken_by is not None:
            return set(taken_by.keys)
        return {key for slot in launch.slots for key in self._slots[slot].keys}

    def _start_waiting(self) -> None:
        """Start attempts whose slots are all free, in the order of launch."""
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
            again = again or self._start_ahead(taken)
        self._send_if_finished()

    def _start_ahead(self, taken: set[int]) -> bool:
        """Start the first attempt launched ahead on a free offered slot; False if there is none."""
        vacant = [slot for slot in self._offered if slot.index not in taken]
        if not vacant or not self._ahead:
            return False
        launch = self._ahead.pop(0)
        self._taken[launch.key] = vacant[0]
        missing = set(vacant[0].keys) - self.leased
        assert not missing, f"{launch.key} is taken by {vacant[0]}, which are not leased"
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
            assert taken < room, (
                f"{launch.key} is started on {gpu}, which another attempt still uses"
            )
        self._pids += 1
        self._running[launch.key] = launch
        started = Started(launch.key, self._pids, self._now_us(), self._clock())
        if launch.ahead:
            slot = self._taken[launch.key]
            started = msgspec.structs.replace(started, slot=slot.index, place=slot.label)
        self._remember(started)
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
        if self._persistent:
            self._history.setdefault(report.key, []).append(report)
        self._send(report)

    def _now_us(self) -> int:
        return round(self._clock() * 1e6)

    def _send_if_finished(self) -> None:
        if self._finishing and not (self._running or self._waiting or self._ahead):
            self._finishing = False
            self._send(Finished())

    def _send(self, report: Report) -> None:
        self._reports.append(report)
        os.eventfd_write(self._wake, 1)


def _by_slot(launches: Iterable[Launch]) -> list[Launch]:
    return sorted(launches, key=lambda launch: launch.slots)
