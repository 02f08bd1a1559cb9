"""Two hundred clients that follow one log, while short jobs start and end."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from benchmarks import crowd
from benchmarks.measure import Contestant, Sample, interleave
from benchmarks.proc import tree_cpu_s
from benchmarks.process import in_company
from benchmarks.queues.stoker import open_queue
from benchmarks.race import pace_figure, standings
from benchmarks.report import Bound, Result, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.arena import Arena
    from benchmarks.queues.stoker import Queue

FOLLOWERS = 200
JOBS = 5000
QUICK_JOBS = 1000
LINE = "true"
WRITER = 'import time\nwhile True: print("x" * 99, flush=True); time.sleep(0.001)'
_ALONE = "nobody follows"
_FOLLOWED = f"{FOLLOWERS} follow"


def run(arena: Arena) -> Result:
    """Run the same jobs with followers and without, in turns, on the slots the writer leaves."""
    jobs = QUICK_JOBS if arena.quick else JOBS
    lines = arena.lines("followers", LINE, jobs)
    with open_queue(arena) as queue:
        python = os.path.abspath(arena.peers.python.path)
        writer = queue.stoker("add", "-q", "--", python, "-c", WRITER).strip()
        contestants = [
            Contestant(name=name, argv=[LINE], stdin=lines, jobs=jobs, env=queue.env)
            for name in (_ALONE, _FOLLOWED)
        ]

        def run_jobs(contestant: Contestant) -> Sample:
            if contestant.name == _ALONE:
                return time_jobs(queue, contestant)
            with open_crowd(queue, writer):
                return time_jobs(queue, contestant)

        for contestant in contestants:
            run_jobs(contestant)
        samples = interleave(contestants, arena.rounds, run_jobs, arena.progress)
    return Result(
        name="followers",
        what=f"{jobs} lines `{LINE}` through the daemon on 3 slots, {arena.rounds} rounds in turns; on"
        f" the fourth a job writes a thousand lines a second, which {FOLLOWERS} follow, or nobody.",
        details=standings(samples, _ALONE),
        figures=[pace_figure(samples, _FOLLOWED, _ALONE, Target(Bound.AT_LEAST, 0.9))],
        notes=[
            "Each follower has a connection of its own; one process reads for all of them.",
            "CPU time is the daemon's, with its supervisor and its jobs.",
        ],
    )


def time_jobs(queue: Queue, contestant: Contestant) -> Sample:
    """Add the lines, and return what it took until all had ended."""
    daemon, _supervisor = queue.pids
    wanted = queue.count("done") + contestant.jobs
    cpu_before_s = tree_cpu_s(daemon)
    began = time.monotonic()
    queue.add(contestant.stdin)
    queue.until(lambda: queue.count("done") >= wanted, f"{contestant.jobs} jobs are done")
    wall_s = time.monotonic() - began
    cpu_s = tree_cpu_s(daemon) - cpu_before_s
    return Sample(jobs=contestant.jobs, wall_s=wall_s, cpu_s=cpu_s)


@contextlib.contextmanager
def open_crowd(queue: Queue, job: str) -> Iterator[None]:
    """Let followers follow a job's log for as long as the block runs."""
    words = [queue.home, f"/v1/log?job={job}&tail=0&follow=true", str(FOLLOWERS)]
    with in_company(crowd.__file__, words, "followers"):
        yield
