"""Turns between users: how soon the job of a newcomer starts, and how equal the parts of two users are."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

from benchmarks.errors import BenchError
from benchmarks.measure import spread
from benchmarks.queues.stoker import Queue, run_stoker
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.arena import Arena

NEWCOMERS = 20
QUICK_NEWCOMERS = 5
# With jobs of 10 s the parts of two users differ by up to a job; a quick run is too short for these.
SHARED_S, JOB_S = 300.0, 10.0
QUICK_SHARED_S, QUICK_JOB_S = 60.0, 2.0
_SHORT_S = 0.4
_MOST_START_S = 0.05


def run(arena: Arena) -> Result:
    """Let two daemons with homes of their own use the same GPUs."""
    count = QUICK_NEWCOMERS if arena.quick else NEWCOMERS
    for_s, job_s = (QUICK_SHARED_S, QUICK_JOB_S) if arena.quick else (SHARED_S, JOB_S)
    with _two_queues(arena, "0") as (holder, newcomer):
        starts = [_time_newcomer(arena, holder, newcomer) for _ in range(count)]
    with _two_queues(arena, "0,1,2,3") as (one, other):
        parts = _share(arena, (one, other), for_s, job_s)
    ms = spread(starts).scaled(1e3)
    rows = [
        [
            "start of a newcomer after the end of a job, ms",
            f"{ms.median:.1f} ({ms.q1:.1f} – {ms.q3:.1f})",
        ],
        ["GPU time of the first, s", f"{parts[0]:.0f}"],
        ["GPU time of the second, s", f"{parts[1]:.0f}"],
    ]
    return Result(
        name="turns",
        what=f"{count} single jobs beside an endless queue on one GPU; then two endless queues with jobs of"
        f" {job_s:g} s on four GPUs for {for_s:g} s.",
        details=Table(("what", "seen (quartiles)"), rows),
        figures=[
            Figure(
                name="start of a newcomer after the end of a job",
                spread=spread(starts),
                target=Target(Bound.AT_MOST, _MOST_START_S),
                unit="s",
            ),
            Figure(
                name="GPU time of two equal users, smaller ÷ larger",
                spread=spread([min(parts) / max(parts)]),
                target=Target(Bound.AT_LEAST, 0.95),
            ),
        ],
        notes=[
            "Both daemons belong to one user: among themselves they take turns by the same rule."
        ],
    )


@contextlib.contextmanager
def _two_queues(arena: Arena, gpus: str) -> Iterator[tuple[Queue, Queue]]:
    program = arena.peers.stoker.path
    with arena.home() as first, arena.home() as second:
        envs = [first, {**second, "STOKER_LEASE_DIR": first["STOKER_LEASE_DIR"]}]
        with contextlib.ExitStack() as stack:
            queues = []
            for env in envs:
                run_stoker(program, ("daemon", "start", "--gpus", gpus), env)
                stack.callback(run_stoker, program, ("daemon", "stop", "--kill"), env)
                queues.append(Queue(program, env))
            yield queues[0], queues[1]


def _time_newcomer(arena: Arena, holder: Queue, newcomer: Queue) -> float:
    """Return the seconds from the end of the holder's job to the start of the newcomer's."""
    jobs = holder.add(arena.lines("turns", f"sleep {_SHORT_S}", 30))
    done = holder.count("done")
    holder.until(lambda: holder.count("done") >= done + 3, "the holder's jobs run")
    job = newcomer.stoker("add", "-q", "true").strip()
    newcomer.stoker("wait", job)
    started = _attempt(newcomer, job)["started_at"]
    first, _, last = jobs.partition("-")
    ends = [
        _attempt(holder, str(each)).get("ended_at") for each in range(int(first), int(last) + 1)
    ]
    holder.stoker("kill", "--all")
    holder.settle()
    before = [end for end in ends if end is not None and end <= started]
    if not before:
        raise BenchError("the newcomer did not wait for a job of the holder")
    return float(started - max(before))


def _attempt(queue: Queue, job: str) -> dict[str, Any]:
    attempts = json.loads(queue.stoker("show", job, "--json"))["attempts"]
    return dict(attempts[0]) if attempts else {}


def _share(arena: Arena, queues: Sequence[Queue], for_s: float, job_s: float) -> list[float]:
    """Return the GPU seconds of each queue's jobs, those that still run included."""
    lines = arena.lines("turns-long", f"sleep {job_s:g}", int(4 * for_s / job_s) + 8)
    for queue in queues:
        queue.add(lines)
    begun = time.time()
    time.sleep(for_s)
    end = time.time()
    parts = []
    for queue in queues:
        found = json.loads(queue.stoker("ls", "-a", "--json"))
        jobs = [_attempt(queue, str(job["id"])) for job in found if job["state"] != "waiting"]
        spans = [
            min(end, job["ended_at"] or end) - max(begun, job["started_at"])
            for job in jobs
            if job.get("started_at") is not None and job["started_at"] < end
        ]
        parts.append(sum(spans))
        queue.stoker("kill", "--all")
    return parts
