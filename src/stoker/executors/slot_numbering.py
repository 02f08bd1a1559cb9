"""The places a supervisor is told of: one for each slot, and those made of several slots or of none."""

from __future__ import annotations

from stoker.core.slot import Slot
from stoker.supervisor.messages import DefineSlot


class SlotNumbering:
    """Numbers places: a slot's has the slot's own number, composites have negative ones."""

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._composites: dict[tuple[int, ...], int] = {}

    def enter(self, slot: Slot) -> DefineSlot:
        """Take note of a slot; returns the order that tells a supervisor."""
        self._slots[slot.index] = slot
        return DefineSlot(slot.index, {"CUDA_VISIBLE_DEVICES": slot.visible}, slot.keys)

    def place(self, slots: tuple[int, ...]) -> tuple[int, list[DefineSlot]]:
        """The number of the place made of these slots, and what must be told first if it is new."""
        if len(slots) == 1:
            return self._slots[slots[0]].index, []
        number = self._composites.get(slots)
        if number is not None:
            return number, []
        found = [self._slots[index] for index in slots]
        number = self._composites[slots] = -1 - len(self._composites)
        visible = dict.fromkeys(gpu for slot in found for gpu in slot.gpus)
        keys = dict.fromkeys(key for slot in found for key in slot.keys)
        env = {"CUDA_VISIBLE_DEVICES": ",".join(visible)}
        return number, [DefineSlot(number, env, list(keys), slots)]

    def start_over(self) -> list[DefineSlot]:
        """Forget the composites; returns what tells a new supervisor of the slots."""
        self._composites.clear()
        return [self.enter(slot) for slot in self._slots.values()]
