"""Slots and nodes that fit a job's placement rule, and slots that fit a recorded label."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.core.node import NodeFacts, split_label
from stoker.core.placement import PlacementRule, read_where
from stoker.core.planner import Candidate
from stoker.core.slot import Slot

if TYPE_CHECKING:
    from stoker.engine.slot_state import SlotState
    from stoker.engine.slots import SlotTable


class PlacementCache:
    """Slots that fit each placement rule, computed once until slots, nodes or models change."""

    def __init__(self, slot_table: SlotTable) -> None:
        self._slot_table = slot_table
        self._version = -1
        self._allowed: dict[str, frozenset[int]] = {}

    def allowed(self, where: str | None) -> frozenset[int] | None:
        """The slots that fit a placement rule, given as text; None for all."""
        if where is None:
            return None
        if self._version != self._slot_table.layout_version:
            self._allowed.clear()
            self._version = self._slot_table.layout_version
        found = self._allowed.get(where)
        if found is None:
            found = self._allowed[where] = self._find(read_where(where))
        return found

    def _find(self, where: PlacementRule) -> frozenset[int]:
        nodes = {name: where.fits_node(self.facts(name)) for name in self._slot_table.by_node}
        return frozenset(
            state.slot.index
            for state in self._slot_table.whole_slots()
            if nodes[state.slot.node] and where.fits_models(self._models(state))
        )

    def _models(self, state: SlotState) -> list[str | None]:
        return [self._slot_table.models.get(key) for key in state.slot.keys]

    def facts(self, name: str) -> NodeFacts:
        """The facts about a node; defaults for this machine outside a cluster."""
        found = self._slot_table.nodes.get(name or self._slot_table.head)
        return NodeFacts(name) if found is None else found

    def is_reachable(self, candidate: Candidate) -> bool:
        """Whether a node is there for a job. For a job with GPUs its slots decide."""
        return candidate.slots > 0 or self.node_without_gpu(candidate.where) is not None

    def node_without_gpu(self, where: str | None) -> str | None:
        """The node on which a job without GPU may start now: empty for this machine, None for none."""
        rule = read_where(where)
        if not (rule.nodes or rule.labels):
            return ""
        slot_table = self._slot_table
        fitting = [node for node in slot_table.nodes.values() if rule.fits_node(node)]
        if any(slot_table.is_own(node.name) for node in fitting):
            return ""
        return next((node.name for node in fitting if node.is_open), None)


def find_slots(slot_table: SlotTable, label: str | None) -> tuple[Slot, ...]:
    """The slots that a recorded label names, or else the slots that have its GPUs now.

    If two attempts name one slot, the second was claimed ahead: it is put behind the first. A label
    without a node was recorded outside a cluster, and one with this machine's name inside one.
    """
    found: list[Slot] = []
    for word in label.split(",") if label else ():
        node, gpus = split_label(word) if slot_table.head else ("", word)
        near = [
            state for own in _names(slot_table, node) for state in slot_table.by_node.get(own, ())
        ]
        states = [state for state in near if state.whole_slot is None and state.slot not in found]
        named = [state for state in states if state.slot.bare == gpus]
        if named:
            free = [state for state in named if state.current is None]
            found.append((free or named)[0].slot)
        else:
            wanted = set(gpus.split("+"))
            found += [state.slot for state in states if not wanted.isdisjoint(state.slot.gpus)]
    return tuple(found)


def _names(slot_table: SlotTable, node: str) -> list[str]:
    """The names that a node in a recorded label may have now."""
    return list(dict.fromkeys(["", slot_table.head])) if slot_table.is_own(node) else [node]
