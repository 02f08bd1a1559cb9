"""Keeps an eye on the GPUs while jobs run or wait."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoker.gpus.nvml import Gpu, Nvml, Reading


class Watch(threading.Thread):
    """A thread that reads every GPU each `period_s` while `active` is set, and sleeps otherwise.

    `latest` holds the last reading by lease key. `changed`, if given, is called from this thread
    with a key and its new reading whenever that differs from the one before.
    """

    def __init__(
        self,
        nvml: Nvml,
        period_s: float = 2.0,
        changed: Callable[[str, Reading], None] | None = None,
    ) -> None:
        super().__init__(name="gpu-watch", daemon=True)
        self.active = threading.Event()
        self.latest: dict[str, Reading] = {}
        self._nvml = nvml
        self._period_s = period_s
        self._changed = changed
        self._stopping = threading.Event()

    def run(self) -> None:
        """Sample until stopped."""
        while self.active.wait() and not self._stopping.is_set():
            for gpu in self._nvml.gpus():
                self._sample(gpu)
            self._stopping.wait(self._period_s)

    def stop(self) -> None:
        """End the thread; returns when it has, or after a second if the driver hangs."""
        self._stopping.set()
        self.active.set()
        if self.is_alive():
            self.join(timeout=1.0)

    def _sample(self, gpu: Gpu) -> None:
        reading = self._nvml.read(gpu)
        if reading == self.latest.get(gpu.uuid):
            return
        self.latest[gpu.uuid] = reading
        if self._changed is not None:
            self._changed(gpu.uuid, reading)
