"""The GPUs of the daemon's machine, and the slots that the user makes of them."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from stoker.core.slot import Slot
from stoker.engine.config import Config
from stoker.engine.gpu_models import Model, models_of
from stoker.errors import StokerError
from stoker.gpus.driver import Gpu
from stoker.gpus.drivers import open_driver
from stoker.gpus.gpu_discovery import enumerate_within
from stoker.gpus.numa import NearCpus
from stoker.gpus.slot_grammar import default_slots, parse_slots, visible_gpus

_ALL_REMOVED = "every GPU was removed from this queue"
_DISCOVERY_TIMEOUT_S = 2.0  # the driver can hang


class LocalGpus:
    """Finds the GPUs of this machine and parses slots; `node` is its name in a cluster."""

    def __init__(self, config: Config, node: str | None) -> None:
        self.nvml = open_driver()
        self._config = config
        is_bound = self.nvml is not None and config.value("cpu.bind")
        self._near_cpus = NearCpus(self.nvml) if is_bound and self.nvml is not None else None
        self._node = node
        self._visible = os.environ.get("CUDA_VISIBLE_DEVICES")

    def known(self) -> tuple[Gpu, ...] | None:
        """All GPUs; None without NVML."""
        return None if self.nvml is None else self.nvml.gpus()

    def is_visible(self, gpu: Gpu) -> bool:
        """Whether CUDA_VISIBLE_DEVICES lets the daemon use a GPU."""
        return gpu in visible_gpus(self.known() or (), self._visible)

    def near_cpus(self, keys: Sequence[str]) -> str:
        """The CPUs to which jobs on these GPUs are bound, as a list; "" for any."""
        if self._near_cpus is None:
            return ""
        return self._near_cpus.of([key.rpartition("/")[2] for key in keys])

    def models(self) -> dict[str, Model]:
        """The models of all GPUs, by lease key."""
        return models_of(self.known() or ())

    def parse_slots(self, text: str) -> tuple[Slot, ...]:
        """Parse slots that a user has typed."""
        try:
            found = parse_slots(text, self.known(), self._visible)
        except StokerError:
            # The GPU may have been added to the machine since the last discovery.
            if self.nvml is None or not enumerate_within(self.nvml, _DISCOVERY_TIMEOUT_S):
                raise
            found = parse_slots(text, self.known(), self._visible)
        return self._on_node(found)

    def initial_slots(self, gpus: str | None) -> tuple[tuple[Slot, ...], str | None]:
        """The slots that the daemon starts with, and the reason if there are none.

        `gpus` are slots from the command line; they are stored in the configuration.
        """
        named = gpus or self._config.gpus
        if named == "none":
            return (), _ALL_REMOVED
        try:
            if named is None or named == "default":
                slots = self._without_removed(default_slots(self.known(), self._visible))
            else:
                slots = parse_slots(named, self.known(), self._visible)
        except StokerError as error:
            if gpus is not None and named != "default":
                raise
            return (), str(error).partition(";")[0]
        if not slots:
            return (), _ALL_REMOVED
        if gpus is not None:
            self._config.change("gpus", gpus)
        return self._on_node(slots), None

    def _on_node(self, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        if self._node is None:
            return slots
        return tuple(msgspec.structs.replace(slot, node=self._node) for slot in slots)

    def _without_removed(self, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        removed = self._config.words("gpus-removed")
        kept = [slot for slot in slots if slot.bare not in removed]
        return tuple(msgspec.structs.replace(slot, index=n) for n, slot in enumerate(kept))
