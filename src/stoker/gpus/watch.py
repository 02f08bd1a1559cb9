"""Keeps an eye on the GPUs while jobs run or wait."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoker.gpus.nvml import Gpu, Nvml, Reading

_HISTORY = 300
_FIRST_PAUSE_S = 2.0
_LONGEST_PAUSE_S = 60.0


class Sample(NamedTuple):
    """What is kept of a reading."""

    at: float
    mem_bytes: int
    utilisation_pct: int | None


class Watch(threading.Thread):
    """A thread that reads every GPU each `period_s` while `active` is set, and sleeps otherwise.

    `latest` holds the last reading by lease key, `history` samples of the last ones. `changed`, if
    given, is called from this thread with a key and its new reading whenever that differs from the one
    before. With `renewed` it looks for GPUs that have come, or come back, when there are signs of that,
    and calls it if there are.
    """

    def __init__(
        self,
        nvml: Nvml,
        period_s: float = 2.0,
        changed: Callable[[str, Reading], None] | None = None,
        renewed: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(name="gpu-watch", daemon=True)
        self.active = threading.Event()
        self.latest: dict[str, Reading] = {}
        self.history: dict[str, deque[Sample]] = {}
        self._nvml = nvml
        self._period_s = period_s
        self._changed = changed
        self._renewed = renewed
        self._renew_at = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._stopping = threading.Event()

    def run(self) -> None:
        """Sample until stopped."""
        while self.active.wait() and not self._stopping.is_set():
            for gpu in self._nvml.gpus():
                self._sample(gpu)
            self._renew_if_need_be()
            self._stopping.wait(self._period_s)

    def stop(self) -> None:
        """End the thread; returns when it has, or after a second if the driver hangs."""
        self._stopping.set()
        self.active.set()
        if self.is_alive():
            self.join(timeout=1.0)

    def _renew_if_need_be(self) -> None:
        if self._renewed is None or time.monotonic() < self._renew_at:
            return
        lost = any(self.latest[gpu.uuid].lost for gpu in self._nvml.gpus())
        if lost or self._nvml.may_have_changed():
            self._nvml.look_anew()
            self._renewed()
        # A GPU that stays lost is asked for less and less often.
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S) if lost else _FIRST_PAUSE_S
        self._renew_at = time.monotonic() + self._pause_s if lost else 0.0

    def _sample(self, gpu: Gpu) -> None:
        reading = self._nvml.read(gpu)
        past = self.history.setdefault(gpu.uuid, deque(maxlen=_HISTORY))
        past.append(Sample(time.time(), reading.mem_used_bytes, reading.utilisation_pct))
        if reading == self.latest.get(gpu.uuid):
            return
        self.latest[gpu.uuid] = reading
        if self._changed is not None:
            self._changed(gpu.uuid, reading)
