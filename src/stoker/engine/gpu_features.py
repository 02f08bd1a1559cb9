"""Optional GPU features of an engine: monitoring, sharing and MPS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoker.core.usage import AttemptUse
    from stoker.engine.gpu_models import Model
    from stoker.engine.gpu_sources import GpuSource
    from stoker.engine.mps import Mps
    from stoker.engine.running_attempt import RunningAttempt
    from stoker.engine.sharing import Sharing


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

    def xid_of(self, running: RunningAttempt) -> int | None:
        """The last driver fault on an attempt's GPUs while it ran."""
        return None if self.monitor is None else self.monitor.xid_of(running)

    def measure(self, running: RunningAttempt) -> AttemptUse | None:
        """What an attempt that has ended used of its GPUs."""
        return None if self.monitor is None else self.monitor.on_end(running)

    def leave_mps(self, running: RunningAttempt) -> None:
        """Remove an ended attempt from the clients of MPS."""
        if self.mps is not None:
            self.mps.leave(running, self._clock())
