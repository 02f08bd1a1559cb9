"""Comparison of policies on the same work, and the lower bound of its duration."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stoker.core.sharing.rules import MOST_TENANTS, NEVER, Mode, Share, SharingRules, gpulimit_rules
from stoker.simulator.simulation import Contender, SimulatedOutcome, Simulation
from stoker.simulator.workload import Machine, Work

EXCLUSIVE = Contender(name="exclusive", share=NEVER)
# gpulimit's defaults: half of the memory free, one start in ten seconds, no retries.
GPULIMIT = Contender(
    name="gpulimit",
    rules=SharingRules(free=gpulimit_rules(0.5, 0.2, most=MOST_TENANTS)),
    share=Share(Mode.FREE),
    recovers=False,
    pace_s=10.0,
)
OURS = Contender(name="stoker")
PERFECT = Contender(name="all known", omniscient=True)
ONE_NUMBER = Contender(name="one number", by_parameter=False)
CONTENDERS = (EXCLUSIVE, GPULIMIT, OURS, PERFECT)


class Comparison(msgspec.Struct, frozen=True):
    """Outcome of one workload under each policy."""

    bound_s: float
    outcomes: dict[str, SimulatedOutcome]

    def speedup(self, name: str) -> float:
        """Return how many times faster all work is done than with a GPU for each job."""
        return self.outcomes[EXCLUSIVE.name].makespan_s / self.outcomes[name].makespan_s

    def over_bound(self, name: str) -> float:
        """Return the makespan as a multiple of the lower bound."""
        return self.outcomes[name].makespan_s / self.bound_s

    @property
    def share_of_gain(self) -> float:
        """Part of the time saved by full knowledge that is saved without it."""
        alone, ours, perfect = (
            self.outcomes[each.name].makespan_s for each in (EXCLUSIVE, OURS, PERFECT)
        )
        return (alone - ours) / (alone - perfect) if alone > perfect else 1.0


def lower_bound_s(works: Sequence[Work], machine: Machine) -> float:
    """Return a bound that no policy can beat: the longest job, the total load, the total memory."""
    first = min(work.arrival_s for work in works)
    return max(
        max(work.arrival_s + work.duration_s for work in works),
        first + sum(work.duration_s * work.sm for work in works) / machine.gpus,
        first + sum(work.byte_seconds for work in works) / (machine.gpus * machine.mem_bytes),
    )


def compete(
    works: list[Work], machine: Machine, contenders: Sequence[Contender] = CONTENDERS
) -> Comparison:
    """Run the work under each policy."""
    outcomes = {each.name: Simulation(works, machine, each).run() for each in contenders}
    return Comparison(lower_bound_s(works, machine), outcomes)
