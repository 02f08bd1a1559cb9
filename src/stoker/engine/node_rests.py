"""Nodes that get no jobs for a while, because they lack disk space, memory or processes."""

from __future__ import annotations

import time
from collections import Counter

import msgspec

from stoker.engine.slots import SlotTable

_FIRST_S, _LONGEST_S = 5.0, 300.0


class NodeRests:
    """Closes a node that refuses a start. Each pause is twice as long as the last, until a start succeeds."""

    def __init__(self, slot_table: SlotTable) -> None:
        self._slot_table = slot_table
        self._refusals: Counter[str] = Counter()
        self._until: dict[str, float] = {}

    def begin(self, node: str, reason: str, now: float) -> None:
        """Let nothing start on a node for a while."""
        facts = self._slot_table.nodes.get(node)
        if facts is None or facts.lacks is not None:
            return  # it refuses several starts that were sent together
        pause_s = min(_LONGEST_S, _FIRST_S * 2 ** min(self._refusals[node], 16))
        self._refusals[node] += 1
        self._until[node] = now + pause_s
        again = time.strftime("%H:%M:%S", time.localtime(time.time() + pause_s))
        self._update(node, f"gets no jobs until {again}: {reason}")

    def on_start(self, node: str) -> None:
        """Note that a node has started an attempt: its next pause is short again."""
        self._refusals.pop(node, None)

    def review(self, now: float) -> None:
        """End the pauses that are over."""
        for node in [node for node, until in self._until.items() if until <= now]:
            del self._until[node]
            self._update(node, None)

    def due_at(self) -> float:
        """When the next pause ends; infinity if there is none."""
        return min(self._until.values(), default=float("inf"))

    def _update(self, node: str, lacks: str | None) -> None:
        facts = self._slot_table.nodes.get(node)
        if facts is not None:
            self._slot_table.update_node(msgspec.structs.replace(facts, lacks=lacks))
