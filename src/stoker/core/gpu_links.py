"""How GPUs are joined, and the best set among open slots by that. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import comb

from stoker.core.slot import Slot

_MOST_SETS = 2000  # beyond that, sets grow from each slot instead of being tried one by one
_MOST_ANSWERS = 1024
_STEP = (
    64  # more than the slots of a node: one better link counts more than any number of worse ones
)


class Link(enum.IntEnum):
    """How two GPUs are joined; a better link is larger."""

    OTHER = 0  # between processors, or unknown
    NODE = 1  # through one NUMA node
    SWITCH = 2  # through PCIe switches alone, peer to peer
    NVLINK = 3  # NVLink, also through NVSwitch


GpuLinks = Mapping[frozenset[str], Link]
"""The link of each pair of GPUs, by their lease keys."""


class SlotLinks:
    """The links between slots of one node whose GPUs are all known.

    Of groups of GPUs, the worst link counts. Slots of different nodes have none: no job uses both.
    """

    def __init__(self, slots: Sequence[Slot], links: GpuLinks) -> None:
        known = {key for pair in links for key in pair}
        mine = [slot for slot in slots if known.issuperset(slot.keys)]
        self.slots = frozenset(slot.index for slot in mine)
        self.nodes = {slot.index: slot.node for slot in mine}
        self._links: dict[tuple[int, int], Link] = {}
        self.placements: dict[tuple[object, ...], tuple[tuple[int, ...], ...]] = {}  # of turns
        self._answers: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}  # of `choose`
        of_nodes: dict[str, list[Slot]] = {}
        for slot in mine:
            of_nodes.setdefault(slot.node, []).append(slot)
        for of_node in of_nodes.values():
            for one, other in combinations(of_node, 2):
                link = min(
                    links.get(frozenset((a, b)), Link.OTHER) for a in one.keys for b in other.keys
                )
                self._links[one.index, other.index] = self._links[other.index, one.index] = link

    @property
    def are_equal(self) -> bool:
        """Whether every choice is as good as any other."""
        return len({*self._links.values()}) < 2

    def choose(self, open_slots: Sequence[int], wanted: int) -> tuple[int, ...]:
        """Return so many of the open slots, in their order.

        Of several, the worst link counts first, then all links; then how little the rest lose.
        """
        if wanted >= len(open_slots):
            return tuple(open_slots)
        question = (tuple(open_slots), wanted)
        answer = self._answers.get(question)
        if answer is None:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            answer = self._answers[question] = self._choose(*question)
        return answer

    def _choose(self, open_slots: tuple[int, ...], wanted: int) -> tuple[int, ...]:
        if comb(len(open_slots), wanted) <= _MOST_SETS:
            sets: Iterable[tuple[int, ...]] = combinations(open_slots, wanted)
        else:
            sets = (self._grow(seed, open_slots, wanted) for seed in open_slots)
        return max(sets, key=lambda chosen: self._worth(chosen, open_slots))

    def sort(self, open_slots: Sequence[int], size: int) -> list[int]:
        """Put the slots of the best set of a size first, then those of the best set of the others."""
        left, found = list(open_slots), list[int]()
        while left:
            chosen = self.choose(left, size)
            found += chosen
            left = [slot for slot in left if slot not in chosen]
        return found

    def _grow(self, seed: int, open_slots: Sequence[int], wanted: int) -> tuple[int, ...]:
        chosen = [seed]
        while len(chosen) < wanted:
            rest = [slot for slot in open_slots if slot not in chosen]
            chosen.append(max(rest, key=lambda slot: self._pull(slot, chosen, rest)))
        return tuple(slot for slot in open_slots if slot in chosen)

    def _pull(self, slot: int, chosen: Sequence[int], rest: Sequence[int]) -> tuple[int, int]:
        """How well a slot fits a set that grows; among equal ones, how well it goes on from there."""
        return (
            sum(self._weigh(slot, each) for each in chosen),
            sum(self._weigh(slot, each) for each in rest),
        )

    def _worth(self, chosen: Sequence[int], open_slots: Sequence[int]) -> tuple[int, int, int]:
        inner = [self._link(a, b) for a, b in combinations(chosen, 2)]
        rest = [slot for slot in open_slots if slot not in chosen]
        lost = sum(self._weigh(slot, other) for slot in chosen for other in rest)
        return min(inner, default=0), sum(_weight(link) for link in inner), -lost

    def _weigh(self, one: int, other: int) -> int:
        return _weight(self._link(one, other))

    def _link(self, one: int, other: int) -> Link:
        return self._links.get((one, other), Link.OTHER)


def _weight(link: Link) -> int:
    return 0 if link is Link.OTHER else _STEP ** (link - 1)
