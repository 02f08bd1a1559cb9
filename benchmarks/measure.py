"""Run contestants in interleaved rounds and compare them by their ratios within each round."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A command line that works through `jobs` lines read from the file `stdin`."""

    name: str
    argv: Sequence[str]
    stdin: str
    jobs: int
    env: Mapping[str, str] = field(repr=False)
    cwd: str = "."
    timeout_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one run of one contestant took; `cpu_s` is that of its whole process tree."""

    jobs: int
    wall_s: float
    cpu_s: float

    @property
    def jobs_per_s(self) -> float:
        """Throughput, by which runs of different lengths compare."""
        return self.jobs / self.wall_s

    @property
    def cpu_per_job_s(self) -> float:
        """CPU time per job, start-up included."""
        return self.cpu_s / self.jobs


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and the quartiles around it."""

    q1: float
    median: float
    q3: float

    def scaled(self, factor: float) -> Spread:
        """Return the same spread in another unit."""
        return Spread(self.q1 * factor, self.median * factor, self.q3 * factor)


def spread(values: Sequence[float]) -> Spread:
    """Return median and quartiles; a single value is all three."""
    if not values:
        raise ValueError("no values to take a median of")
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(q1, median, q3)


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """Return the spread of the per-round ratios, not the ratio of two medians.

    Both sides of a round met the same noise, which the ratio takes out.
    """
    pairs = zip(numerators, denominators, strict=True)
    return spread([above / below for above, below in pairs])


def turn_order(count: int, round_no: int) -> list[int]:
    """Return who runs when: a rotation per round, reversed in every second cycle.

    Over two cycles each contestant has each position equally often, and the order of neighbours varies.
    """
    order = [(place + round_no) % count for place in range(count)]
    return order[::-1] if (round_no // count) % 2 else order


def interleave(
    contestants: Sequence[Contestant],
    rounds: int,
    run_once: Callable[[Contestant], T],
    on_round: Callable[[int], None],
) -> dict[str, list[T]]:
    """Run every contestant once per round and return what each one's runs gave, in round order."""
    samples: dict[str, list[T]] = {contestant.name: [] for contestant in contestants}
    for round_no in range(rounds):
        on_round(round_no)
        for place in turn_order(len(contestants), round_no):
            contestant = contestants[place]
            samples[contestant.name].append(run_once(contestant))
    return samples
