"""Turns between real users: how soon the job of a newcomer starts, and the parts of two and three users."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from benchmarks.errors import BenchError
from benchmarks.measure import spread
from benchmarks.queues.users import UserQueue, open_user_queues
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.arena import Arena

NEWCOMERS = 20
QUICK_NEWCOMERS = 5
# With jobs of 10 s the parts of two users differ by up to a job; a quick run is too short for these.
SHARED_S, JOB_S = 300.0, 10.0
QUICK_SHARED_S, QUICK_JOB_S = 60.0, 2.0
SHARES = (1.0, 1.0, 2.0)
MOST_ROUNDS = 3  # of five minutes each
MOST_OFF = 0.05
_GPUS = "0,1,2,3"
_SHORT_S = 0.4
_MOST_START_S = 0.05


def run(arena: Arena) -> Result:
    """Let daemons of several users use the same GPUs."""
    count = QUICK_NEWCOMERS if arena.quick else NEWCOMERS
    for_s, job_s = (QUICK_SHARED_S, QUICK_JOB_S) if arena.quick else (SHARED_S, JOB_S)
    with open_user_queues(arena, 2, "0") as (holder, newcomer):
        starts = [_time_newcomer(holder, newcomer) for _ in range(count)]
    rounds = [_share_twice(arena, for_s, job_s) for _ in range(min(arena.rounds, MOST_ROUNDS))]
    equal = [pair[0] / pair[1] for pair, _three in rounds]
    weighted = [worst_part(three, SHARES) for _pair, three in rounds]
    ms = spread(starts).scaled(1e3)
    rows = [
        ["start after the end of a job, ms", f"{ms.median:.1f} ({ms.q1:.1f} – {ms.q3:.1f})"],
        ["GPU time of two users, s", "; ".join(_seconds(pair) for pair, _three in rounds)],
        ["GPU time of three users, s", "; ".join(_seconds(three) for _pair, three in rounds)],
    ]
    return Result(
        name="turns",
        what=f"Users of the machine, each with a daemon: {count} single jobs beside an endless queue on one"
        f" GPU; then {len(equal)} rounds of {for_s:g} s in which two users, and beside them on other leases"
        f" three with shares 1:1:2, have endless jobs of {job_s:g} s on four GPUs.",
        details=Table(("what", "seen (quartiles)"), rows),
        figures=[
            Figure(
                name="start of a newcomer after the end of a job",
                spread=spread(starts),
                target=Target(Bound.AT_MOST, _MOST_START_S),
                unit="s",
            ),
            *part_figures(equal, weighted),
        ],
    )


def part_figures(equal: Sequence[float], weighted: Sequence[float]) -> list[Figure]:
    """Return the figures of the parts: two equal users, and three by shares."""
    return [
        Figure(
            name="GPU time of two equal users, smaller ÷ larger",
            spread=spread([min(ratio, 1.0 / ratio) for ratio in equal]),
            target=Target(Bound.AT_LEAST, 1.0 - MOST_OFF),
        ),
        Figure(
            name="three users 1:1:2, the part that is most off its due",
            spread=spread(weighted),
            target=Target(Bound.AT_MOST, MOST_OFF),
            unit="of it",
        ),
    ]


def worst_part(parts: Sequence[float], shares: Sequence[float]) -> float:
    """Return by how much the part that is most off differs from what is due to it, divided by that."""
    due = [share / sum(shares) * sum(parts) for share in shares]
    return max(abs(part / owed - 1.0) for part, owed in zip(parts, due, strict=True))


def _time_newcomer(holder: UserQueue, newcomer: UserQueue) -> float:
    """Return the seconds from the end of the holder's job to the start of the newcomer's."""
    before = len(holder.jobs())
    holder.add(f"sleep {_SHORT_S}", 30)
    holder.until(lambda jobs: _count_done(jobs[: len(jobs) - before]) >= 3, "the holder's jobs run")
    newcomer.stoker("add", "-q", "true")
    newcomer.stoker("wait")
    started = newcomer.jobs()[0]["started_at"]
    holder.stoker("kill", "--all")
    holder.until(lambda jobs: not any(job["state"] == "running" for job in jobs), "all has ended")
    ends = [job["ended_at"] for job in holder.jobs() if job["started_at"] is not None]
    earlier = [end for end in ends if end is not None and end <= started]
    if not earlier:
        raise BenchError("the newcomer did not wait for a job of the holder")
    return float(started - max(earlier))


def _count_done(jobs: Sequence[dict[str, object]]) -> int:
    return sum(job["state"] == "done" for job in jobs)


def _share_twice(arena: Arena, for_s: float, job_s: float) -> list[list[float]]:
    """Return the GPU seconds of two users, and of three at the same time on leases of their own."""
    with contextlib.ExitStack() as stack:
        boxes = [
            stack.enter_context(open_user_queues(arena, 2, _GPUS)),
            stack.enter_context(open_user_queues(arena, len(SHARES), _GPUS, SHARES)),
        ]
        with ThreadPoolExecutor(len(boxes)) as threads:
            return [*threads.map(lambda queues: _share(queues, for_s, job_s), boxes)]


def _share(queues: Sequence[UserQueue], for_s: float, job_s: float) -> list[float]:
    """Return the GPU seconds of each user's jobs, those that still run included."""
    for queue in queues:
        queue.add(f"sleep {job_s:g}", int(4 * for_s / job_s) + 8)
    begun = time.time()
    time.sleep(for_s)
    end = time.time()
    parts = [queue.gpu_s(begun, end) for queue in queues]
    for queue in queues:
        queue.stoker("kill", "--all")
    return parts


def _seconds(parts: Sequence[float]) -> str:
    return ", ".join(f"{part:.0f}" for part in parts)
