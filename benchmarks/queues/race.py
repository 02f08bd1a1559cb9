"""The same jobs through every queue, from the first one added to the last one's end."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from benchmarks.arena import command_line
from benchmarks.measure import Contestant
from benchmarks.queues.gflow import SCRIPT as GFLOW_SCRIPT
from benchmarks.queues.gflow import open_gflow
from benchmarks.queues.stoker import open_queue
from benchmarks.queues.tsp import SCRIPT as TSP_SCRIPT
from benchmarks.queues.tsp import open_tsp
from benchmarks.race import pace_figure, standings
from benchmarks.report import Bound, Result, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

JOBS = 5000
QUICK_JOBS = 1000
# Each waits in a process of its own.
TSP_JOBS = 1000
# About a second each.
GFLOW_JOBS = 8
STOKER_SCRIPT = "{stoker} add -q --batch - && exec {stoker} wait"


def race_queues(arena: Arena, name: str, line: str, gflow_command: str) -> Result:
    """Race the queues, and xargs, which has none, as the floor."""
    jobs = QUICK_JOBS if arena.quick else JOBS
    with contextlib.ExitStack() as stack:
        queue = stack.enter_context(open_queue(arena))
        tsp = stack.enter_context(open_tsp(arena))
        gflow = stack.enter_context(open_gflow(arena))
        xargs = [arena.peers.xargs.path, "-P4", "-d", "\\n", "-n1", "sh", "-c"]
        stoker_script = STOKER_SCRIPT.format(stoker=arena.peers.stoker.path)
        gflow_script = GFLOW_SCRIPT.format(command=gflow_command)
        contestants = [
            Contestant(
                name=who, argv=argv, stdin=arena.lines(name, line, count), jobs=count, env=env
            )
            for who, argv, count, env in (
                ("xargs", xargs, jobs, arena.env),
                ("stoker", ["sh", "-c", stoker_script], jobs, queue.env),
                ("tsp", ["sh", "-c", TSP_SCRIPT], min(jobs, TSP_JOBS), tsp),
                ("gflow", ["sh", "-c", gflow_script], GFLOW_JOBS, gflow),
            )
        ]
        samples = arena.race(contestants, line)
    return Result(
        name=name,
        what=f"Lines `{line}` through daemons with 4 slots, {arena.rounds} interleaved rounds: from"
        " the start of the command that adds them to the end of the one that waits for them.",
        details=standings(samples, "xargs"),
        figures=[
            pace_figure(samples, "stoker", "xargs", Target(Bound.AT_LEAST, 0.85)),
            pace_figure(samples, "stoker", "tsp", Target(Bound.MORE_THAN, 1.0)),
            pace_figure(samples, "stoker", "gflow", Target(Bound.MORE_THAN, 1.0)),
        ],
        commands=[command_line(contestant) for contestant in contestants],
        notes=[
            f"tsp gets at most {TSP_JOBS} lines and gflow {GFLOW_JOBS}; jobs per second compare.",
            "Stoker keeps every job's output in a file; tsp is told not to (-n).",
        ],
    )
