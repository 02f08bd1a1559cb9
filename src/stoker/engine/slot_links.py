"""Links between the slots of this machine, computed again when slots change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.core.gpu_links import GpuLinks, SlotLinks

if TYPE_CHECKING:
    from stoker.engine.slots import SlotTable


class SlotLinkCache:
    """The links of the slots that there are now. `gpus` has those of the GPUs, by their lease keys."""

    def __init__(self, slot_table: SlotTable) -> None:
        self.gpus: GpuLinks = {}
        self._slot_table = slot_table
        self._seen: tuple[int, GpuLinks] | None = None
        self._links: SlotLinks | None = None

    def current(self) -> SlotLinks | None:
        """Return the links; None if nothing is known, or if every choice of slots is equally good."""
        if not self.gpus:
            return None
        slot_table = self._slot_table
        if self._seen is None or self._seen != (slot_table.layout_version, self.gpus):
            self._seen = slot_table.layout_version, self.gpus
            found = SlotLinks(
                [state.slot for state in slot_table.own_states() if state.whole_slot is None],
                self.gpus,
            )
            self._links = None if found.are_equal else found
        return self._links
