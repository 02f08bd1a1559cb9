"""The sampler: one thread that measures GPUs and jobs while jobs run or wait."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from stoker.core.usage import AttemptUse, GpuUse, JobUse, Look, Sight
from stoker.gpus.driver import Gpu, GpuDriver, Reading
from stoker.gpus.gpu_discovery import GpuDiscovery
from stoker.gpus.memory_release import MemoryReleases
from stoker.gpus.process_census import OwnerOf, ProcessCensus, ProcessCount
from stoker.gpus.usage_meter import UsageMeter

_NEW_S = 60.0
_PEEK_S = 0.05
_PEEKED_GPUS = 4  # with more of them, they are read half as often
_LEAST_PAUSE_S = 0.5  # between two samples because of new attempts
_SETTLED_S = 600.0
_HISTORY = 300
_KEPT = 64  # ended attempts; each takes some 30 kB
_NOTICED_BYTES = 64 << 20  # no process that computes on a GPU holds less
_DOUBTED = 2  # after this many lists in a row that miss a running job, lists are not trusted
_NOTHING: Look = Look(0.0, {}, {})

Subjects = Callable[[], Mapping[str, tuple[str, ...]]]
"""Returns the running attempts with the lease keys of their GPUs."""


class Sampler(threading.Thread):
    """Samples while `active` is set; otherwise sleeps without waking up.

    `awaits` tells whether a job runs or starts on a GPU: if not, a process there that /proc does not show is
    foreign. `keeps` tells whether an attempt without GPUs will have them again. `look` is the last sample.
    `changed` is called from this thread when the processes on a GPU changed, and `renewed` when GPUs were
    added or removed. Memory is read every second, and twenty times a second from the start of a job that is
    alone on its GPU (`peek_pause_s`): a run that computes for a third of a second shows its peak. The
    process list, which takes the driver milliseconds, is read every second only while a job is new.
    """

    def __init__(
        self,
        nvml: GpuDriver,
        *,
        subjects: Subjects,
        owner_of: OwnerOf,
        awaits: Callable[[str], bool],
        keeps: Callable[[str], bool] = lambda _attempt: False,
        changed: Callable[[], None] = lambda: None,
        renewed: Callable[[], None] | None = None,
        period_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name="gpu-sampler", daemon=True)
        self.active = threading.Event()
        self.look = _NOTHING
        self.latest: dict[str, Reading] = {}
        self.history: dict[str, deque[tuple[float, int, int | None]]] = {}
        self.overdue: deque[tuple[str, str]] = deque(maxlen=_HISTORY)
        """GPU and attempt whose memory was not released in time."""
        self.census = ProcessCensus(owner_of)
        self._nvml = nvml
        self._subjects = subjects
        self._awaits = awaits
        self._keeps = keeps
        self._changed = changed
        self._renewal = None if renewed is None else GpuDiscovery(nvml, renewed)
        self._period_s = period_s
        self._clock = clock
        self._counts: dict[str, ProcessCount] = {}
        self._meters: dict[str, UsageMeter] = {}
        self._ended: dict[str, UsageMeter] = {}
        self._releases = MemoryReleases()
        self._idle_bytes: dict[str, int] = {}
        self._listed_bytes: dict[str, int] = {}
        self._idle_unlisted_bytes: dict[str, int] = {}
        self._doubts: dict[str, int] = {}
        self._sm_pct: dict[str, dict[int, int] | None] = {}
        self._list_at_s: dict[str, float] = {}
        self._listed_us: dict[str, int] = {}
        self._surges: dict[str, int] = {}  # the most memory seen on a GPU since its last reading
        self._lone: dict[str, str] = {}  # GPUs with one new attempt
        self._shown: object = None
        self._nudged = threading.Event()
        self._is_due = False  # a sample is wanted at once; otherwise a nudge means a new attempt
        self._answered = threading.Condition()
        self._asked = self._answers = 0
        self._stopping = False

    def run(self) -> None:
        """Sample until stopped."""
        while self.active.wait() and not self._stopping:
            self._nudged.clear()
            self._is_due = False
            asked = self._asked
            self.sample(lists=asked > self._answers)
            with self._answered:
                self._answers = asked
                self._answered.notify_all()
            if self._renewal is not None:
                self._renewal.follow(self.latest)
            self._pause(self._releases.pause_s(self._period_s))

    def stop(self) -> None:
        """End the thread. Returns when it has ended, or after a second if the driver hangs."""
        self._stopping = True
        self.active.set()
        self._nudge()
        if self.is_alive():
            self.join(timeout=1.0)

    def sample_now(self, timeout_s: float) -> bool:
        """Take a sample now, with all processes; False if the driver takes longer than `timeout_s`."""
        with self._answered:
            self._asked = asked = self._asked + 1
            self.active.set()
            self._nudge()
            return self._answered.wait_for(lambda: self._answers >= asked, timeout_s)

    def on_start(self) -> None:
        """Watch an attempt that has just started, without waiting for the next sample."""
        self._nudged.set()

    def _nudge(self) -> None:
        self._is_due = True
        self._nudged.set()

    def _pause(self, pause_s: float) -> None:
        """Wait for the next sample. Until then, look at the memory of GPUs with a new attempt."""
        began_s = time.monotonic()
        has_new = any(map(self._is_unsampled, self._subjects()))
        while (left_s := began_s + pause_s - time.monotonic()) > 0 and not self._stopping:
            if has_new and time.monotonic() - began_s >= _LEAST_PAUSE_S:
                return
            peek_s = min(left_s, peek_pause_s(len(self._lone)))
            if self._nudged.wait(peek_s if has_new or self._lone else left_s):
                self._nudged.clear()
                if self._is_due:
                    return
            has_new = self.peek()

    def peek(self) -> bool:
        """Read the memory of GPUs with one new attempt, and keep the largest figure.

        Returns whether an attempt waits for its first sample.
        """
        subjects = self._subjects()
        handed_over = self._follow_starts(subjects)
        for gpu in self._nvml.gpus():
            if gpu.uuid in self._lone and gpu.uuid not in handed_over:
                used = self._nvml.used_bytes(gpu)
                if used is not None and used > self._surges.get(gpu.uuid, 0):
                    self._surges[gpu.uuid] = used
        return any(map(self._is_unsampled, subjects))

    def _follow_starts(self, subjects: Mapping[str, tuple[str, ...]]) -> set[str]:
        """Find the attempts that have started since the last sample; watch those that are alone.

        Returns the GPUs that have passed from one attempt to the next: memory of the first may not be
        released yet.
        """
        there = _attempts_by_gpu(subjects)
        for gpu_key, key in list(self._lone.items()):
            meter = self._meters.get(key)
            if len(there.get(gpu_key, ())) > 1 and meter is not None:
                self._note_surges(key, meter)
                meter.note_company()
                del self._lone[gpu_key]
        handed_over = set()
        for key in filter(self._is_unsampled, subjects):
            if any(there[gpu_key] != [key] for gpu_key in subjects[key]):
                continue
            self._meters.setdefault(key, UsageMeter(key, self._clock()))
            for gpu_key in subjects[key]:
                if self._lone.get(gpu_key) != key:
                    self._surges.pop(gpu_key, None)
                    handed_over |= {gpu_key} if gpu_key in self._lone else set()
                    self._lone[gpu_key] = key
        return handed_over

    def _note_surges(self, key: str, meter: UsageMeter) -> None:
        """Add the memory that an attempt held between two samples to its peak."""
        for gpu_key in [gpu for gpu, attempt in list(self._lone.items()) if attempt == key]:
            surge, count = self._surges.get(gpu_key), self._counts.get(gpu_key)
            if surge is None or count is None or count.foreigners:
                continue
            listed = count.mem_bytes(key) if count.sight is Sight.PROCESSES else 0
            before = self._listed_bytes.get(gpu_key) if listed else self._idle_bytes.get(gpu_key)
            if before is not None and surge > before:
                meter.note_peak(self._clock(), listed + surge - before)

    def _note_lone(self, subjects: Mapping[str, tuple[str, ...]]) -> None:
        """Find the GPUs with one attempt, which is new."""
        self._lone = {
            gpu_key: keys[0]
            for gpu_key, keys in _attempts_by_gpu(subjects).items()
            if len(keys) == 1 and self._is_new(keys[0])
        }
        self._surges.clear()

    def _is_new(self, key: str) -> bool:
        meter = self._meters.get(key)  # None if the attempt has just ended
        return meter is not None and meter.watched_s < _NEW_S

    def _is_unsampled(self, key: str) -> bool:
        meter = self._meters.get(key)
        return meter is None or not meter.samples

    def take(self, key: str) -> AttemptUse | None:
        """Return what an ended attempt used, and wait for its memory to be released."""
        meter = self._meters.pop(key, None)
        if meter is None:
            return None
        self._note_surges(key, meter)
        self._ended[key] = meter
        if len(self._ended) > _KEPT:
            del self._ended[next(iter(self._ended))]
        for gpu_key, mem_bytes in meter.mem_bytes.items():
            count = self._counts.get(gpu_key)
            if count is not None and count.sight is Sight.PROCESSES and mem_bytes:
                self._releases.begin(gpu_key, key, count.jobs.get(key, ()), self._clock())
                self._nudge()
        return meter.sum_up()

    def releasing(self, gpu_key: str) -> bool:
        """Whether memory of an ended attempt on a GPU is still waited for. Works while the driver hangs."""
        return self._releases.is_pending(gpu_key, self._clock())

    def release_wait_s(self) -> float | None:
        """Return how long until the next such wait times out; None if there is none."""
        return self._releases.wait_s(self._clock())

    def histories(self) -> Mapping[str, list[tuple[float, int | None, float | None]]]:
        """Return the last minutes of every running attempt: time, memory, share of a GPU's time."""
        return {key: list(meter.history) for key, meter in list(self._meters.items())}

    def history_of(self, key: str) -> list[tuple[float, int | None, float | None]]:
        """Return the last minutes of a running attempt, or of one that ended recently."""
        meter = self._ended.get(key) or self._meters.get(key)
        return [] if meter is None else list(meter.history)

    def sample(self, *, lists: bool = False) -> None:
        """Read every GPU once, and its processes if `lists` is set or they are due."""
        now = self._clock()
        subjects = self._subjects()
        gpus = self._nvml.gpus()
        due = {gpu.uuid for gpu in gpus if lists or now >= self._list_at_s.get(gpu.uuid, 0.0)}
        unsampled = filter(self._is_unsampled, subjects)
        due.update(self._releases.gpus(), *(subjects[key] for key in unsampled))
        for gpu in gpus:
            self._read(gpu, gpu.uuid in due)
            if gpu.uuid in due:
                self._distrust_list(gpu.uuid, subjects)
        self._settle_releases(now)
        self.census.forget_but(pid for count in self._counts.values() for pid in count.pids)
        jobs = self._measure(subjects, now)
        self._note_lone(subjects)
        releasing = self._releases.gpus()
        uses = {gpu.uuid: self._use_of(gpu, now, gpu.uuid in releasing) for gpu in gpus}
        self.look = Look(now, uses, jobs)
        for gpu_key in due:
            ages = [jobs[key].watched_s for key, keys in subjects.items() if gpu_key in keys]
            self._list_at_s[gpu_key] = now + self._pause_s(min(ages, default=_NEW_S))
        self._report_changes()

    def _pause_s(self, youngest_s: float) -> float:
        if youngest_s < _NEW_S:
            return self._period_s
        return self._period_s * (2 if youngest_s < _SETTLED_S else 5)

    def _read(self, gpu: Gpu, lists: bool) -> None:
        key = gpu.uuid
        before = self.latest.get(key)
        if not lists and before is not None:
            self.latest[key] = reading = self._nvml.update_usage(before)
            if reading.lost:
                self._counts[key] = self.census.count(reading)
            return
        reading = self._nvml.read(gpu)
        count = self.census.count(reading, self._counts.get(key))
        if count.sight is Sight.DEVICE and reading.processes is not None:
            # A process that exited between the driver's answer and ours is missing from a second answer.
            reading = self._nvml.read(gpu)
            if not self._awaits(key) and not self.releasing(key):
                self.census.note_outsiders(reading)
            count = self.census.count(reading, self._counts.get(key))
        self.latest[key], self._counts[key] = reading, count
        self._listed_bytes[key] = reading.mem_used_bytes
        since_us, self._listed_us[key] = self._listed_us.get(key, 0), time.time_ns() // 1000
        self._sm_pct[key] = self._nvml.sm_by_pid(gpu, since_us) if reading.processes else {}

    def _distrust_list(self, gpu_key: str, subjects: Mapping[str, tuple[str, ...]]) -> None:
        """Ignore NVML's process list if it shows none of our jobs although unexplained memory is in use.

        Only after several such lists: memory of a process that has ended may be released a moment later.
        """
        count, reading = self._counts[gpu_key], self.latest[gpu_key]
        if count.sight is not Sight.PROCESSES:
            return
        listed = sum(process.mem_bytes or 0 for process in reading.processes or ())
        unlisted = reading.mem_used_bytes - listed
        ours = [key for key, gpu_keys in subjects.items() if gpu_key in gpu_keys]
        doubts = self._doubts.get(gpu_key, 0)
        if not ours:
            self._idle_unlisted_bytes[gpu_key] = unlisted
        elif any(key in count.jobs for key in ours):
            doubts = 0
        elif unlisted - self._idle_unlisted_bytes.get(gpu_key, 0) > _NOTICED_BYTES:
            doubts += 1
        elif doubts < _DOUBTED:
            doubts = 0
        self._doubts[gpu_key] = doubts
        if doubts >= _DOUBTED:
            self._counts[gpu_key] = msgspec.structs.replace(count, sight=Sight.DEVICE)

    def _measure(self, subjects: Mapping[str, tuple[str, ...]], now: float) -> dict[str, JobUse]:
        """Add a sample to every attempt's meter."""
        tenants: dict[str, int] = {}
        for gpu_keys in subjects.values():
            for gpu_key in gpu_keys:
                tenants[gpu_key] = tenants.get(gpu_key, 0) + 1
        jobs = {}
        for key, gpu_keys in subjects.items():
            meter = self._meters.get(key)
            if meter is None:
                meter = self._meters[key] = UsageMeter(key, now)
            alone = all(tenants[gpu_key] == 1 for gpu_key in gpu_keys)
            meter.add(
                now,
                self._mem_of(key, gpu_keys, alone),
                self._sm_of(key, gpu_keys, alone),
                alone=alone,
            )
            self._note_surges(key, meter)
            jobs[key] = meter.now()
        for gone in self._meters.keys() - subjects.keys():
            if not self._keeps(gone):
                self._meters.pop(gone, None)
        for gpu_key, reading in self.latest.items():
            if gpu_key not in tenants and not reading.lost:
                self._idle_bytes[gpu_key] = reading.mem_used_bytes
        return jobs

    def _mem_of(self, key: str, gpu_keys: tuple[str, ...], alone: bool) -> dict[str, int] | None:
        found = {}
        for gpu_key in gpu_keys:
            count, reading = self._counts.get(gpu_key), self.latest.get(gpu_key)
            if count is None or reading is None or count.sight is Sight.NONE:
                return None
            if count.sight is Sight.PROCESSES:
                # On a job's own GPU, memory that was added since the list was read belongs to the job.
                listed = count.mem_bytes(key)
                more = (
                    reading.mem_used_bytes - self._listed_bytes[gpu_key] if alone and listed else 0
                )
                found[gpu_key] = max(0, listed + more)
            elif alone and gpu_key in self._idle_bytes:
                found[gpu_key] = max(0, reading.mem_used_bytes - self._idle_bytes[gpu_key])
            else:
                return None
        return found

    def _sm_of(self, key: str, gpu_keys: tuple[str, ...], alone: bool) -> float | None:
        """Return the mean load over the job's GPUs."""
        shares = []
        for gpu_key in gpu_keys:
            count, by_pid = self._counts.get(gpu_key), self._sm_pct.get(gpu_key)
            if count is not None and count.tells_load_apart and by_pid is not None:
                shares.append(sum(by_pid.get(pid, 0) for pid in count.jobs.get(key, ())))
            elif alone and gpu_key in self.latest:
                utilisation_pct = self.latest[gpu_key].utilisation_pct
                shares += [] if utilisation_pct is None else [utilisation_pct]
        return sum(shares) / len(shares) if shares else None

    def _use_of(self, gpu: Gpu, now: float, releasing: bool) -> GpuUse:
        reading, count = self.latest[gpu.uuid], self._counts[gpu.uuid]
        past = self.history.setdefault(gpu.uuid, deque(maxlen=_HISTORY))
        past.append((now, reading.mem_used_bytes, reading.utilisation_pct))
        return GpuUse(
            key=gpu.uuid,
            label=gpu.label,
            sight=count.sight,
            total_bytes=gpu.mem_total_bytes,
            used_bytes=reading.mem_used_bytes,
            driver_bytes=reading.driver_bytes,
            foreign_bytes=sum(each.mem_bytes or 0 for each in count.foreigners),
            foreigners=count.foreigners,
            utilisation_pct=reading.utilisation_pct,
            releasing=releasing,
        )

    def _settle_releases(self, now: float) -> None:
        present = {gpu_key: count.pids for gpu_key, count in self._counts.items()}
        for gpu_key, attempt, is_overdue in self._releases.settle(present, now, self._period_s):
            if is_overdue:
                self.overdue.append((gpu_key, attempt))
            self._shown = None  # report it: the engine may wait for it without having seen it begin

    def _report_changes(self) -> None:
        # Only changes of processes are reported: memory differs in every sample.
        shown = [
            (use.key, use.sight, use.releasing, [each.pid for each in use.foreigners])
            for use in self.look.gpus.values()
        ]
        if shown != self._shown:
            self._shown = shown
            self._changed()


def peek_pause_s(gpus: int) -> float:
    """Return the time between two readings of the memory of so many GPUs with one new attempt each."""
    return _PEEK_S if gpus <= _PEEKED_GPUS else 2 * _PEEK_S


def _attempts_by_gpu(subjects: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    there: dict[str, list[str]] = {}
    for key, gpu_keys in subjects.items():
        for gpu_key in gpu_keys:
            there.setdefault(gpu_key, []).append(key)
    return there
