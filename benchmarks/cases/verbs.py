"""Latency of the verbs that people type all day, compared with the start of Python."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from benchmarks.cases.startup import start_of, time_starts
from benchmarks.measure import ratios
from benchmarks.queues.stoker import open_queue
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

MIN_ROUNDS = 30
JOBS = 50
_PYTHON = "python -c pass"
_VERBS = (("ls",), ("log", "7"), ("why", "7"), ("show", "7"), ("status",), ("wait", "--all"))
_MOST = 1.6


def run(arena: Arena) -> Result:
    """Look at a queue of 50 jobs that have ended."""
    arena = dataclasses.replace(arena, rounds=max(arena.rounds, MIN_ROUNDS))
    path = os.path.abspath(os.path.join(arena.folder, "inputs", f"verbs-{JOBS}"))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"echo {number}\n" for number in range(JOBS))
    with open_queue(arena) as queue:
        queue.add(path)
        queue.settle()
        programs = {_PYTHON: [arena.peers.python.path, "-c", "pass"]}
        programs |= {f"stoker {' '.join(words)}": [queue.program, *words] for words in _VERBS}
        contestants = [start_of(name, argv, queue.env) for name, argv in programs.items()]
        walls, rows = time_starts(arena, contestants)
    return Result(
        name="verbs",
        what=f"Start to exit, with a daemon that has {JOBS} jobs, {arena.rounds} interleaved rounds.",
        details=Table(("contestant", "ms (quartiles)"), rows),
        figures=[
            Figure(
                name=f"wall time, {name} ÷ {_PYTHON}",
                spread=ratios(walls[name], walls[_PYTHON]),
                target=Target(Bound.AT_MOST, _MOST),
            )
            for name in walls
            if name != _PYTHON
        ],
        commands=[f"{arena.peers.python.path} -c pass"]
        + [f"{arena.peers.stoker.path} {' '.join(words)}" for words in _VERBS],
    )
