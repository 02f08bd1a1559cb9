"""Machines whose GPUs are joined in the ways that the fake NVML knows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from stoker.core.gpu_links import Link, SlotLinks
from stoker.core.slot import Slot

Pairs = list[tuple[tuple[int, int], Link]]


def _make(link_of: Callable[[int, int], Link]) -> Callable[[int], Pairs]:
    return lambda gpus: [((a, b), link_of(a, b)) for a, b in combinations(range(gpus), 2)]


MATRICES: dict[str, Callable[[int], Pairs]] = {
    "equal": _make(lambda _a, _b: Link.NODE),
    "nvswitch": _make(lambda _a, _b: Link.NVLINK),
    "pcie-2x4": _make(lambda a, b: Link.SWITCH if a // 4 == b // 4 else Link.OTHER),
    "pairs": _make(
        lambda a, b: (
            Link.NVLINK if a // 2 == b // 2 else Link.NODE if a // 4 == b // 4 else Link.OTHER
        )
    ),
}


def make_links(matrix: str, gpus: int) -> SlotLinks:
    """Return the links of a machine with a slot for each GPU."""
    slots = [Slot(n, (str(n),), (f"GPU-{n}",)) for n in range(gpus)]
    of = {frozenset((f"GPU-{a}", f"GPU-{b}")): link for (a, b), link in MATRICES[matrix](gpus)}
    return SlotLinks(slots, of)
