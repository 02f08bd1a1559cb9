"""How GPUs are, wherever they are: this machine's as its GPU monitor sees them, the nodes' as they tell."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from stoker.core.usage import AttemptUse, GpuUse, Look
from stoker.engine.cluster_gpus import ClusterGpus
from stoker.engine.gpu_monitor import GpuMonitor
from stoker.engine.slots import RunningAttempt
from stoker.executors.node_reports import GpuState

_WANTED_S = 10.0
Sample = tuple[float, int | None, float | None]


class GpuSource(Protocol):
    """What the engine and its services ask of whoever looks at GPUs."""

    @property
    def sick(self) -> Mapping[str, str]:
        """GPUs that may have no jobs, and why."""

    def look(self) -> Look | None:
        """What was seen last; None where there is nothing to rely on."""

    def on_end(self, running: RunningAttempt) -> AttemptUse | None:
        """What an attempt has used; its slots stay closed until its memory is back."""

    def xid_of(self, running: RunningAttempt) -> int | None:
        """The last fault that the driver told of an attempt's GPUs while it ran."""

    def gpus(self) -> Mapping[str, GpuUse]:
        """Every GPU as it was seen last, however long ago."""

    def name_of(self, key: str) -> str | None:
        """What kind of GPU one is."""

    def state(self, key: str) -> GpuState | None:
        """What the figures do not tell of a GPU."""

    def history(self, key: str) -> Sequence[tuple[float, int, int | None]]:
        """The last minutes of a GPU."""

    def history_of(self, attempt: str) -> list[Sample]:
        """The last minutes of an attempt, also of one that has ended lately."""

    def histories(self) -> Mapping[str, list[Sample]]:
        """The last minutes of every attempt that runs."""

    def forgive(self, keys: tuple[str, ...]) -> None:
        """Take GPUs for healthy again."""

    def rouse(self) -> None:
        """Look at once, and from now on again."""


class GpuSources:
    """Both at once. A head may have no GPU itself."""

    def __init__(self, cluster_gpus: ClusterGpus) -> None:
        self.near: GpuMonitor | None = None
        self.far = cluster_gpus
        self._wanted_until_s = 0.0

    @property
    def is_wanted(self) -> bool:
        """Whether somebody has asked lately how GPUs are."""
        return time.monotonic() < self._wanted_until_s

    @property
    def sick(self) -> Mapping[str, str]:
        """Of this machine."""
        return {} if self.near is None else self.near.sick

    def look(self) -> Look | None:
        """One look at all GPUs; None where nothing was seen."""
        near, far = (None if self.near is None else self.near.look()), self.far.looks()
        if near is None:
            return far if far.gpus else None
        if not far.gpus:
            return near
        return Look(near.at_s, {**near.gpus, **far.gpus}, {**near.jobs, **far.jobs})

    def on_end(self, running: RunningAttempt) -> AttemptUse | None:
        """What an attempt has used."""
        if self.far.has(running):
            return self.far.on_end(running)
        return None if self.near is None else self.near.on_end(running)

    def xid_of(self, running: RunningAttempt) -> int | None:
        """The last fault of an attempt's GPUs."""
        return None if self.near is None else self.near.xid_of(running)

    def gpus(self) -> Mapping[str, GpuUse]:
        """Every GPU as it was seen last."""
        near = {} if self.near is None else self.near.gpus()
        return {**near, **self.far.gpus()}

    def name_of(self, key: str) -> str | None:
        """What kind of GPU one is."""
        near = None if self.near is None else self.near.name_of(key)
        return near or self.far.name_of(key)

    def state(self, key: str) -> GpuState | None:
        """What the figures do not tell of a GPU."""
        near = None if self.near is None else self.near.state(key)
        return near or self.far.state(key)

    def history(self, key: str) -> Sequence[tuple[float, int, int | None]]:
        """The last minutes of a GPU."""
        near: Sequence[tuple[float, int, int | None]] = (
            () if self.near is None else self.near.history(key)
        )
        return near or self.far.history(key)

    def history_of(self, attempt: str) -> list[Sample]:
        """The last minutes of an attempt."""
        near = [] if self.near is None else self.near.history_of(attempt)
        return near or self.far.history_of(attempt)

    def histories(self) -> Mapping[str, list[Sample]]:
        """The last minutes of every attempt that runs."""
        near = {} if self.near is None else self.near.histories()
        return {**near, **self.far.histories()}

    def forgive(self, keys: tuple[str, ...]) -> None:
        """Take GPUs for healthy again."""
        if self.near is not None:
            self.near.forgive(keys)

    def rouse(self) -> None:
        """Look at once, and for a while; nodes take a second to answer."""
        self._wanted_until_s = time.monotonic() + _WANTED_S
        if self.near is not None:
            self.near.rouse()
