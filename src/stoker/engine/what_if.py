"""What if: how jobs that are not in the queue would run, and which projects they would delay.

A pure function of the queue as it is expected to run; `plan` foretells the starts of any jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from stoker.core.planner import Candidate
from stoker.core.sharing.parameters import CommandFacts
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.sharing_forecast import Expected
from stoker.engine.start_forecast import PlannedStart

_MOST = 40  # simulated jobs; of more runs, each stands for several
_LEAST_DELAY_S = 1.0

Like = Literal["given", "kind", "program", "any"]


class Outlook(NamedTuple):
    """The first waiting jobs and the running ones, with the time that each still needs.

    `usual_s` is the time of a job of which nothing is known; None if nothing is known of any job.
    """

    waiting: list[Expected]
    running: list[tuple[RunningAttempt, float]]
    usual_s: float | None


class Supposed(msgspec.Struct, frozen=True, kw_only=True):
    """Alike jobs that are not in the queue. The id of the candidate is negative."""

    candidate: Candidate
    facts: CommandFacts
    name: str | None
    runs: int
    run_s: float | None


class Foretold(msgspec.Struct, frozen=True, kw_only=True):
    """The expected runs, in seconds from now, and by how many seconds each project would be over later."""

    run_s: float
    like: Like
    planned: list[PlannedStart]
    delays: dict[str | None, float]


def foretell(
    supposed: Supposed,
    run_s: float,
    like: Like,
    outlook: Outlook,
    plan: Callable[[Sequence[Expected]], list[PlannedStart]],
) -> Foretold:
    """Plan the queue with and without the supposed jobs, and compare."""
    shown = min(supposed.runs, _MOST)
    each_s = run_s * supposed.runs / shown
    own = [
        Expected(msgspec.structs.replace(supposed.candidate, id=-number), each_s)
        for number in range(1, shown + 1)
    ]
    waiting = outlook.waiting
    at = next(
        (
            number
            for number, job in enumerate(waiting)
            if job.candidate.priority < supposed.candidate.priority
        ),
        len(waiting),
    )
    with_own = plan([*waiting[:at], *own, *waiting[at:]])
    projects = {job.candidate.id: job.candidate.project for job in waiting}
    before, after = _ends(plan(waiting), projects), _ends(with_own, projects)
    delays = {project: end_s - before.get(project, end_s) for project, end_s in after.items()}
    return Foretold(
        run_s=run_s,
        like=like,
        planned=[each for each in with_own if each.job < 0],
        delays={name: delay_s for name, delay_s in delays.items() if delay_s >= _LEAST_DELAY_S},
    )


def _ends(
    planned: Sequence[PlannedStart], projects: dict[int, str | None]
) -> dict[str | None, float]:
    """Return when the last waiting job of each project is over."""
    ends: dict[str | None, float] = {}
    for each in planned:
        if each.job in projects:
            project = projects[each.job]
            ends[project] = max(ends.get(project, 0.0), each.end_s)
    return ends
