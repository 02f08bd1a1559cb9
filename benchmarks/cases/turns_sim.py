"""Turns between users in simulated hours: real engines, with leases, jobs and a clock in memory."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cases.turns import SHARES, part_figures, worst_part
from benchmarks.report import Result, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.arena import Arena

HOUR_S, QUICK_S = 3600.0, 600.0
JOB_S = 10.0
JOB_LENGTHS_S = (7.0, 13.0, 10.0)  # of the three users with shares
# When the others come after the first, in each round: together, within its jobs, and long after.
LATER_S = (0.0, 2.5, 5.0, 7.5, 300.0)
_TESTS = os.path.join(os.path.dirname(__file__), "..", "..", "tests")
_GPUS = 4
_LONGEST_IDLE_S = 2.0


def run(arena: Arena) -> Result:
    """Simulate two equal users, and three with shares."""
    if _TESTS not in sys.path:
        sys.path.insert(0, _TESTS)
    for_s = QUICK_S if arena.quick else HOUR_S
    pairs = [_simulate((1.0, 1.0), (JOB_S, JOB_S), later_s, for_s) for later_s in LATER_S]
    threes = [_simulate(SHARES, JOB_LENGTHS_S, later_s, for_s) for later_s in LATER_S]
    rows = [
        [f"{later_s:g}", _seconds(pair), _seconds(three)]
        for later_s, pair, three in zip(LATER_S, pairs, threes, strict=True)
    ]
    return Result(
        name="turns_sim",
        what=f"Two users with endless jobs of {JOB_S:g} s, and three with shares 1:1:2 and jobs of"
        f" {', '.join(f'{each:g}' for each in JOB_LENGTHS_S)} s, on four GPUs for {for_s:g} simulated seconds"
        " from the time when the last of them came.",
        details=Table(("others come after, s", "GPU s of two", "GPU s of three"), rows),
        figures=part_figures(
            [pair[0] / pair[1] for pair in pairs], [worst_part(three, SHARES) for three in threes]
        ),
        notes=["A GPU that is idle for more than 2 s while a user waits ends the benchmark."],
    )


def _simulate(
    shares: Sequence[float], lengths_s: Sequence[float], later_s: float, for_s: float
) -> list[float]:
    """Return the GPU seconds of each user, after the others have caught up with what the first had alone."""
    from stoker.core.box_rules import BoxRules
    from unit.engine.turn_box import Box

    names = [f"user{number}" for number in range(len(shares))]
    lengths = dict(zip(names, lengths_s, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        box = Box(Path(folder), _GPUS)
        uids = {name: 401_001 + number for number, name in enumerate(names)}
        box.file.rules = BoxRules(
            shares={str(uids[name]): share for name, share in zip(names, shares, strict=True)}
        )
        for name, uid in uids.items():
            box.add(name, uid).add(*["train"] * int(_GPUS * (for_s + 4 * later_s)))
            if name == names[0]:
                box.run(later_s, lengths)
        # The first had the GPUs alone: after this the others have as much, by their shares.
        box.run(later_s * (sum(shares) / shares[0] - 1.0), lengths)
        before = [box.members[name].used_s for name in names]
        box.run(for_s, lengths)
        if box.longest_idle_s > _LONGEST_IDLE_S:
            raise AssertionError(f"a GPU was idle for {box.longest_idle_s} s while a user waited")
        parts = [box.members[name].used_s - used for name, used in zip(names, before, strict=True)]
        box.close()
    return parts


def _seconds(parts: Sequence[float]) -> str:
    return ", ".join(f"{part:.0f}" for part in parts)
