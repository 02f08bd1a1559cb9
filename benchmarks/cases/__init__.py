"""One module per benchmark, in the order they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cases import (
    gap,
    million,
    planner,
    startup,
    sweep,
    throughput_direct,
    throughput_shell,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.arena import Arena
    from benchmarks.report import Result

CASES: dict[str, Callable[[Arena], Result]] = {
    "startup": startup.run,
    "planner": planner.run,
    "throughput_shell": throughput_shell.run,
    "throughput_direct": throughput_direct.run,
    "gap": gap.run,
    "million": million.run,
    "sweep": sweep.run,
}

LONG = frozenset({"million", "sweep"})
