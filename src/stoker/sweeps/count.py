"""Number of runs of a space, computed without making them where possible."""

from __future__ import annotations

from typing import NamedTuple

from stoker.errors import UsageError
from stoker.sweeps.expand import Expansion, size_of
from stoker.sweeps.space import Method, Space

MAX_RUNS = 10_000_000


class Count(NamedTuple):
    """A number of runs; an upper bound if it is not exact."""

    runs: int
    exact: bool


def bound(space: Space) -> Count:
    """Compute the number of runs by arithmetic alone."""
    if space.method is Method.TPE:
        return Count(space.samples or 0, exact=True)
    total = sum(map(size_of, space.blocks))
    drawn = any(block.draws for block in space.blocks)
    conditional = bool(space.exclude) or any(
        each.when is not None for block in space.blocks for each in block.dimensions
    )
    if space.method is Method.RANDOM:
        samples = total if space.samples is None else space.samples
        weighted = any(axis.weights for block in space.blocks for axis in block.axes)
        runs = samples if drawn or weighted else min(total, samples)
        exact = not (conditional or drawn or weighted or (len(space.blocks) > 1 and runs > 1))
    elif drawn:
        samples = space.samples or 0
        runs = sum(size_of(each) * (samples if each.draws else 1) for each in space.blocks)
        exact = False  # two draws may be equal
    else:
        runs = total if space.samples is None else min(total, space.samples)
        exact = not conditional and len(space.blocks) == 1
    return Count(runs * (1 if space.repeats is None else space.repeats), exact)


def check_size(space: Space) -> None:
    """Raise UsageError for a sweep that is too large to queue."""
    count = bound(space)
    if count.runs > MAX_RUNS:
        about = "" if count.exact else "up to "
        raise UsageError(
            f"the sweep has {about}{count.runs:,} runs, and {MAX_RUNS:,} can be queued:"
            " take fewer values, or method: random with samples"
        )


def count_runs(space: Space) -> tuple[int, Expansion | None]:
    """Return the exact number of runs, and the finished expansion if they had to be counted one by one."""
    count = bound(space)
    if count.exact:
        return count.runs, None
    expansion = Expansion(space)
    return sum(1 for _point in expansion), expansion
