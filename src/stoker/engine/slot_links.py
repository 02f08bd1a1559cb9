"""Links between the slots of each machine, computed again when slots change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.core.gpu_links import GpuLinks, SlotLinks

if TYPE_CHECKING:
    from stoker.engine.slots import SlotTable


class SlotLinkCache:
    """The links of the slots that there are now.

    `gpus` has those of this machine's GPUs, by their lease keys. `set_node` adds those of other machines.
    """

    def __init__(self, slot_table: SlotTable) -> None:
        self.gpus: GpuLinks = {}
        self._nodes: dict[str, GpuLinks] = {}
        self._version = 0
        self._slot_table = slot_table
        self._seen: tuple[int, int, GpuLinks] | None = None
        self._links: SlotLinks | None = None

    def set_node(self, name: str, gpus: GpuLinks) -> None:
        """Set the links of a node's GPUs, by their lease keys in the cluster."""
        if self._nodes.get(name, {}) != gpus:
            self._nodes[name] = gpus
            self._version += 1

    def current(self) -> SlotLinks | None:
        """Return the links; None if nothing is known, or if every choice of slots is equally good."""
        if not (self.gpus or self._nodes):
            return None
        slot_table = self._slot_table
        now = slot_table.layout_version, self._version, self.gpus
        if self._seen is None or self._seen != now:
            self._seen = now
            known = dict(self.gpus)
            for gpus in self._nodes.values():
                known.update(gpus)
            found = SlotLinks([state.slot for state in slot_table.whole_slots()], known)
            self._links = None if found.are_equal else found
        return self._links
