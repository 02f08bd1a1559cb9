"""Discovery of GPUs that appear or come back while the daemon runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from stoker.gpus.driver import GpuDriver, Reading

_FIRST_PAUSE_S = 2.0
_LONGEST_PAUSE_S = 60.0


class GpuDiscovery:
    """Enumerates the GPUs again when they may have changed, and then calls `renewed`."""

    def __init__(self, nvml: GpuDriver, renewed: Callable[[], None]) -> None:
        self._nvml = nvml
        self._renewed = renewed
        self._at_s = 0.0
        self._pause_s = _FIRST_PAUSE_S

    def follow(self, latest: Mapping[str, Reading]) -> None:
        """Enumerate again if a GPU is lost, or if the driver shows signs of a change."""
        if time.monotonic() < self._at_s:
            return
        lost = any(latest[gpu.uuid].lost for gpu in self._nvml.gpus() if gpu.uuid in latest)
        if lost or self._nvml.may_have_changed():
            self._nvml.enumerate_again()
            self._renewed()
        # A GPU that stays lost is asked for less and less often.
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S) if lost else _FIRST_PAUSE_S
        self._at_s = time.monotonic() + self._pause_s if lost else 0.0


def enumerate_within(nvml: GpuDriver, timeout_s: float) -> bool:
    """Enumerate again, but wait at most `timeout_s` for the driver. Returns whether the GPUs changed."""
    found: list[bool] = []
    thread = threading.Thread(
        target=lambda: found.append(nvml.enumerate_again()), name="gpu-renewal", daemon=True
    )
    thread.start()
    thread.join(timeout_s)
    return any(found)
