"""Optional GPU features of an engine: monitoring, sharing and MPS."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from stoker.core.usage import Sample as Sample
from stoker.core.usage import with_reported_peak

if TYPE_CHECKING:
    from stoker.core.usage import AttemptUse, GpuUse, Look
    from stoker.engine.gpu_models import Model
    from stoker.engine.mps import Mps
    from stoker.engine.running_attempt import RunningAttempt
    from stoker.engine.shared_gpus import Tenancy
    from stoker.engine.sharing import Sharing
    from stoker.executors.node_reports import GpuState


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

    def on_start(self, _running: RunningAttempt) -> None:
        """Watch an attempt whose process has just been reported."""

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


class GpuFeatures:
    """The optional GPU features of an engine; each can be None.

    The monitor can be added later: a machine can get its first GPU while the engine runs.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        sharing: Sharing | None = None,
        mps: Mps | None = None,
    ) -> None:
        self.sharing = sharing
        self.mps = mps
        self.monitor: GpuSource | None = None
        self._clock = clock

    def watch(
        self, monitor: GpuSource, models: Callable[[], Mapping[str, Model]] | None = None
    ) -> None:
        """Use a monitor from now on; jobs can share GPUs whose models are known."""
        self.monitor = monitor
        if self.sharing is not None and models is not None:
            self.sharing.watch(monitor.look, models)

    def samples_since(self, attempt: str, at: float) -> list[Sample] | None:
        """The samples of an attempt after a time of the sampler's clock; None if nothing can be observed."""
        if self.monitor is None:
            return None
        new = [sample for sample in self.monitor.history_of(attempt) if sample[0] > at]
        return new if new or self.monitor.look() is not None else None

    def xid_of(self, running: RunningAttempt) -> int | None:
        """The last driver fault on an attempt's GPUs while it ran."""
        return None if self.monitor is None else self.monitor.xid_of(running)

    def on_start(self, running: RunningAttempt) -> None:
        """Watch an attempt whose process has just been reported."""
        if self.monitor is not None:
            self.monitor.on_start(running)

    def measure(self, running: RunningAttempt, reported_bytes: int = 0) -> AttemptUse | None:
        """What an attempt that has ended used of its GPUs.

        `reported_bytes` is the peak of its memory by its own report. With what its kind holds beside that, it
        counts if it is larger than what was measured and the attempt has one GPU, with so much memory.
        """
        if self.monitor is None:
            return None
        use = self.monitor.on_end(running)
        gpu_keys = [key for slot in running.slots for key in slot.keys]
        gpu = self.monitor.gpus().get(gpu_keys[0]) if len(gpu_keys) == 1 else None
        if gpu is None or not 0 < reported_bytes <= gpu.total_bytes:
            return use
        peak_bytes, tenancy = reported_bytes, self.tenancy_of(running)
        if self.sharing is not None and tenancy is not None:
            peak_bytes = self.sharing.gpus.whole_peak(tenancy, use, reported_bytes)
        peak_bytes = min(peak_bytes, gpu.total_bytes)
        return with_reported_peak(use, peak_bytes, alone=not self._had_company(running))

    def tenancy_of(self, running: RunningAttempt) -> Tenancy | None:
        """The place of an attempt on a shared GPU; None if it has none."""
        return None if self.sharing is None else self.sharing.gpus.tenancies.get(running.key)

    def _had_company(self, running: RunningAttempt) -> bool:
        tenancy = self.tenancy_of(running)
        if self.sharing is None or tenancy is None:
            return False
        return self.sharing.gpus.had_company(tenancy)

    def suits_mps(self, running: RunningAttempt) -> bool:
        """Whether an attempt that did not ask for MPS uses it: it may share, and its kind is proved."""
        if self.mps is None or self.sharing is None or running.is_claimed_ahead:
            return False
        return self.mps.may_add(running) and self.sharing.is_proved(running)

    def is_mps_client(self, running: RunningAttempt) -> bool:
        """Whether an attempt uses an MPS server."""
        return self.mps is not None and self.mps.is_client(running)

    def leave_mps(self, running: RunningAttempt) -> None:
        """Remove an ended attempt from the clients of MPS."""
        if self.mps is not None:
            self.mps.leave(running, self._clock())
