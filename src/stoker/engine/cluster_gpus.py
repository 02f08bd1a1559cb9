"""The GPUs of a cluster: those of this machine, and those of nodes as they reported them last."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from stoker.core.usage import AttemptUse, GpuUse, JobUse, Look
from stoker.engine.gpu_features import GpuSource, Sample
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slot_state import ClosedBy, SlotState
from stoker.engine.slots import SlotTable
from stoker.executors.node_reports import GpuSample, GpuState
from stoker.executors.remote_executor import remote_key
from stoker.gpus.memory_release import PATIENCE_S

_STALE_S = 10.0
_WANTED_S = 10.0
_HISTORY = 300
_REMEMBERED = 100


class RemoteGpus(msgspec.Struct):
    """The last report of a node about its GPUs and jobs, at `at_s` of this machine's clock."""

    at_s: float
    gpus: dict[str, GpuUse]
    jobs: dict[str, JobUse]
    states: dict[str, GpuState]


class ClusterGpus(GpuSource):
    """Combined view of local and remote GPUs. `local` is set once this machine has a monitor."""

    def __init__(self, slot_table: SlotTable) -> None:
        self.local = GpuSource()
        self._slot_table = slot_table
        self._wanted_until_s = 0.0
        self._far: dict[str, RemoteGpus] = {}
        self._history: dict[str, deque[tuple[float, int, int | None]]] = {}
        self._uses: dict[str, deque[Sample]] = {}
        self._ended: dict[str, deque[Sample]] = {}
        self._awaited_until_s: dict[int, float] = {}  # for the memory of ended jobs, by slot
        self.on_notice: Callable[[str], None] = lambda _text: None

    def see(self, node: str, sample: GpuSample | None) -> None:
        """Apply the report of a node; None if the node cannot see its GPUs."""
        now = time.monotonic()
        if sample is None:
            self._go_on(node, now)
            return
        gpus = {
            remote_key(node, key): msgspec.structs.replace(
                use, key=remote_key(node, key), label=f"{node}/{use.label}"
            )
            for key, use in sample.look.gpus.items()
        }
        jobs = {key: _placed(use, node) for key, use in sample.look.jobs.items()}
        states = {remote_key(node, key): gpu_state for key, gpu_state in sample.states.items()}
        self._far[node] = RemoteGpus(now, gpus, jobs, states)
        for key, use in gpus.items():
            past = self._history.setdefault(key, deque(maxlen=_HISTORY))
            past.append((now, use.used_bytes, use.utilisation_pct))
        for key, job in jobs.items():
            if key not in self._slot_table.running:
                continue  # it ended after the node sampled
            held = None if job.mem_bytes is None else max(job.mem_bytes.values(), default=0)
            self._uses.setdefault(key, deque(maxlen=_HISTORY)).append((now, held, job.sm_pct))
        self._judge(node, states, gpus)

    @property
    def is_wanted(self) -> bool:
        """Whether a client has asked about GPUs in the last seconds."""
        return time.monotonic() < self._wanted_until_s

    def rouse(self) -> None:
        """Look now and for some seconds; nodes take a second to answer."""
        self._wanted_until_s = time.monotonic() + _WANTED_S
        self.local.rouse()

    def on_start(self, running: RunningAttempt) -> None:
        """Watch an attempt that has started on this machine; nodes watch theirs themselves."""
        self.local.on_start(running)

    def is_sick(self, keys: Iterable[str]) -> bool:
        """Whether one of these GPUs of this machine may have no jobs because of a fault."""
        return self.local.is_sick(keys)

    def forgive(self, keys: tuple[str, ...]) -> None:
        """Treat GPUs as healthy again."""
        self.local.forgive(keys)

    def xid_of(self, running: RunningAttempt) -> int | None:
        """The last driver fault on an attempt's GPUs, if they are local."""
        return self.local.xid_of(running)

    def gpus(self) -> Mapping[str, GpuUse]:
        """Every GPU as it was seen last."""
        remote = {key: use for far in self._far.values() for key, use in far.gpus.items()}
        return {**self.local.gpus(), **remote}

    def name_of(self, key: str) -> str | None:
        """The model name of a GPU."""
        return self.local.name_of(key) or self._slot_table.models.get(key)

    def history(self, key: str) -> Sequence[tuple[float, int, int | None]]:
        """The last minutes of a GPU."""
        return self.local.history(key) or self._history.get(key, ())

    def forget(self, node: str) -> None:
        """Drop the report of a node that has left."""
        self._far.pop(node, None)

    def on_end(self, running: RunningAttempt) -> AttemptUse | None:
        """What an ended attempt has used; closes its slots until its memory is freed."""
        if self._slot_table.is_own(running.where):
            return self.local.on_end(running)
        if (past := self._uses.pop(running.key, None)) is not None:
            self._ended[running.key] = past
            if len(self._ended) > _REMEMBERED:
                del self._ended[next(iter(self._ended))]
        far = self._far.get(running.where)
        job = None if far is None else far.jobs.pop(running.key, None)
        if job is None:
            return None
        if job.mem_bytes and any(job.mem_bytes.values()):
            for slot in running.slots:
                self._await_memory(self._slot_table.states[slot.index])
        return job.so_far

    def _await_memory(self, state: SlotState) -> None:
        state.releasing = True
        self._awaited_until_s[state.slot.index] = time.monotonic() + PATIENCE_S
        if state.whole_slot is not None:
            self._await_memory(self._slot_table.states[state.whole_slot])

    def _go_on(self, node: str, now: float) -> None:
        """Stop waiting for memory if the node cannot see whether it was released."""
        for state in self._slot_table.by_node.get(node, ()):
            if state.releasing and now >= self._awaited_until_s.get(state.slot.index, 0.0):
                state.releasing = False
                if state.whole_slot is None:
                    self.on_notice(
                        f"GPU {state.slot.label}: cannot confirm that the previous job's GPU memory was"
                        " freed; starting the next job anyway"
                    )

    def has_seen_all(self) -> bool:
        """Whether every node that is not away has reported recently."""
        now = time.monotonic()
        return all(
            name in self._far and now - self._far[name].at_s <= _STALE_S
            for name, facts in self._slot_table.nodes.items()
            if facts.away is None
            and not self._slot_table.is_own(name)
            and self._slot_table.by_node.get(name)
        )

    def look(self) -> Look | None:
        """One look at all GPUs; None if nothing was seen recently."""
        now, local = time.monotonic(), self.local.look()
        fresh = [far for far in self._far.values() if now - far.at_s <= _STALE_S]
        gpus = {key: use for far in fresh for key, use in far.gpus.items()}
        if not gpus:
            return local
        jobs = {key: use for far in fresh for key, use in far.jobs.items()}
        if local is None:
            return Look(now, gpus, jobs)
        return Look(local.at_s, {**local.gpus, **gpus}, {**local.jobs, **jobs})

    def state(self, key: str) -> GpuState | None:
        """Temperature, power and fault state of a GPU."""
        remote = (far.states[key] for far in self._far.values() if key in far.states)
        return self.local.state(key) or next(remote, None)

    def history_of(self, attempt: str) -> list[Sample]:
        """The last minutes of an attempt, also if it has ended recently."""
        remote = self._uses.get(attempt, self._ended.get(attempt, ()))
        return self.local.history_of(attempt) or list(remote)

    def histories(self) -> Mapping[str, list[Sample]]:
        """The last minutes of every running attempt."""
        return {**self.local.histories(), **{key: list(past) for key, past in self._uses.items()}}

    def _judge(self, node: str, states: Mapping[str, GpuState], gpus: Mapping[str, GpuUse]) -> None:
        for state in self._slot_table.by_node.get(node, ()):
            found = [
                gpu_state.closed
                for key in state.slot.keys
                if (gpu_state := states.get(key)) is not None and gpu_state.closed
            ]
            closed = found[0] if found else None
            if closed != state.closed.get(ClosedBy.GPU):
                state.close(ClosedBy.GPU, closed)
                if state.whole_slot is None:
                    how = f"is {closed}" if closed else "is free again"
                    self.on_notice(f"GPU {state.slot.label} {how}")
            state.releasing = any(gpus[key].releasing for key in state.slot.keys if key in gpus)


def _placed(use: JobUse, node: str) -> JobUse:
    if use.mem_bytes is None:
        return use
    held = {remote_key(node, key): mem for key, mem in use.mem_bytes.items()}
    return msgspec.structs.replace(use, mem_bytes=held)
