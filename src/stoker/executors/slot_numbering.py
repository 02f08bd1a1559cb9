"""Numbers of the places that a supervisor knows: one for each slot, and composites of several or no slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stoker.core.slot import Slot, slot_variables
from stoker.supervisor.messages import DefineSlot


class SlotNumbering:
    """Assigns numbers: a slot's own number to its place, negative numbers to composites.

    `cpus_of` returns the CPUs to which jobs on GPUs are bound, given by lease keys; "" for any.
    """

    def __init__(self, cpus_of: Callable[[Sequence[str]], str] = lambda _keys: "") -> None:
        self._cpus_of = cpus_of
        self._slots: dict[int, Slot] = {}
        self._composites: dict[tuple[int, ...], int] = {}

    def enter(self, slot: Slot) -> DefineSlot:
        """Add a slot. Returns the order that defines its place."""
        self._slots[slot.index] = slot
        return DefineSlot(slot.index, self._variables(slot.gpus, slot.keys), slot.keys)

    def place(self, slots: tuple[int, ...]) -> tuple[int, list[DefineSlot]]:
        """Return the number of the place of these slots, and the order that defines it if it is new."""
        if len(slots) == 1:
            return self._slots[slots[0]].index, []
        number = self._composites.get(slots)
        if number is not None:
            return number, []
        found = [self._slots[index] for index in slots]
        number = self._composites[slots] = -1 - len(self._composites)
        visible = dict.fromkeys(gpu for slot in found for gpu in slot.gpus)
        keys = list(dict.fromkeys(key for slot in found for key in slot.keys))
        return number, [DefineSlot(number, self._variables(list(visible), keys), keys, slots)]

    def _variables(self, gpus: Sequence[str], keys: Sequence[str]) -> dict[str, str]:
        cpus = self._cpus_of(keys)
        return {**slot_variables(gpus, keys), **({"STOKER_BOUND_CPUS": cpus} if cpus else {})}

    def start_over(self) -> list[DefineSlot]:
        """Forget the composites. Returns the orders that define all slots at a new supervisor."""
        self._composites.clear()
        return [self.enter(slot) for slot in self._slots.values()]
