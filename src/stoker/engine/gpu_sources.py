"""Combined view of local and remote GPUs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from stoker.core.usage import AttemptUse, GpuUse, Look
from stoker.engine.running_attempt import RunningAttempt
from stoker.executors.node_reports import GpuState

if TYPE_CHECKING:
    from stoker.engine.cluster_gpus import ClusterGpus

_WANTED_S = 10.0
Sample = tuple[float, int | None, float | None]
"""Time, bytes of GPU memory and per cent of the GPU that an attempt used."""


class GpuSource:
    """What the engine and its services ask about GPUs. This base class knows no GPU."""

    def look(self) -> Look | None:
        """The last look at all GPUs; None if there is none that is recent."""
        return None

    def has_seen_all(self) -> bool:
        """Whether every node that can be reached has reported its GPUs recently."""
        return True

    def is_sick(self, _keys: Iterable[str]) -> bool:
        """Whether one of these GPUs may have no jobs because of a fault."""
        return False

    def on_end(self, _running: RunningAttempt) -> AttemptUse | None:
        """What an ended attempt has used; closes its slots until its memory is freed."""
        return None

    def xid_of(self, _running: RunningAttempt) -> int | None:
        """The last driver fault on an attempt's GPUs while it ran."""
        return None

    def gpus(self) -> Mapping[str, GpuUse]:
        """Every GPU as it was seen last, however long ago."""
        return {}

    def name_of(self, _key: str) -> str | None:
        """The model name of a GPU."""
        return None

    def state(self, _key: str) -> GpuState | None:
        """Temperature, power and fault state of a GPU."""
        return None

    def history(self, _key: str) -> Sequence[tuple[float, int, int | None]]:
        """The last minutes of a GPU."""
        return ()

    def history_of(self, _attempt: str) -> list[Sample]:
        """The last minutes of an attempt, also if it has ended recently."""
        return []

    def histories(self) -> Mapping[str, list[Sample]]:
        """The last minutes of every running attempt."""
        return {}

    def forgive(self, _keys: tuple[str, ...]) -> None:
        """Treat GPUs as healthy again."""

    def rouse(self) -> None:
        """Look now, and periodically from now on."""


class GpuSources(GpuSource):
    """The GPUs of this machine, once it has a monitor, and of all nodes."""

    def __init__(self, nodes: ClusterGpus) -> None:
        self.local = GpuSource()
        self._nodes = nodes
        self._wanted_until_s = 0.0

    @property
    def is_wanted(self) -> bool:
        """Whether a client has asked about GPUs in the last seconds."""
        return time.monotonic() < self._wanted_until_s

    def look(self) -> Look | None:
        """One look at all GPUs; None if nothing was seen."""
        local, remote = self.local.look(), self._nodes.looks()
        if local is None:
            return remote if remote.gpus else None
        if not remote.gpus:
            return local
        return Look(local.at_s, {**local.gpus, **remote.gpus}, {**local.jobs, **remote.jobs})

    def has_seen_all(self) -> bool:
        """Whether every node that can be reached has reported its GPUs recently."""
        return self._nodes.has_seen_all()

    def is_sick(self, keys: Iterable[str]) -> bool:
        """Whether one of these GPUs of this machine may have no jobs because of a fault."""
        return self.local.is_sick(keys)

    def on_end(self, running: RunningAttempt) -> AttemptUse | None:
        """What an ended attempt has used."""
        return (self._nodes if self._nodes.has(running) else self.local).on_end(running)

    def xid_of(self, running: RunningAttempt) -> int | None:
        """The last driver fault on an attempt's GPUs, if they are local."""
        return self.local.xid_of(running)

    def gpus(self) -> Mapping[str, GpuUse]:
        """Every GPU as it was seen last."""
        return {**self.local.gpus(), **self._nodes.gpus()}

    def name_of(self, key: str) -> str | None:
        """The model name of a GPU."""
        return self.local.name_of(key) or self._nodes.name_of(key)

    def state(self, key: str) -> GpuState | None:
        """Temperature, power and fault state of a GPU."""
        return self.local.state(key) or self._nodes.state(key)

    def history(self, key: str) -> Sequence[tuple[float, int, int | None]]:
        """The last minutes of a GPU."""
        return self.local.history(key) or self._nodes.history(key)

    def history_of(self, attempt: str) -> list[Sample]:
        """The last minutes of an attempt."""
        return self.local.history_of(attempt) or self._nodes.history_of(attempt)

    def histories(self) -> Mapping[str, list[Sample]]:
        """The last minutes of every running attempt."""
        return {**self.local.histories(), **self._nodes.histories()}

    def forgive(self, keys: tuple[str, ...]) -> None:
        """Treat GPUs as healthy again."""
        self.local.forgive(keys)

    def rouse(self) -> None:
        """Look now and for some seconds; nodes take a second to answer."""
        self._wanted_until_s = time.monotonic() + _WANTED_S
        self.local.rouse()
