"""Latency of the verbs that people type all day, compared with the start of Python."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from benchmarks.measure import Contestant, interleave, ratios, spread
from benchmarks.queues.stoker import open_queue
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

MIN_ROUNDS = 30
JOBS = 50
_PYTHON = "python -c pass"
_VERBS = (("ls",), ("log", "7"), ("why", "7"))
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
        contestants = [
            Contestant(name=name, argv=argv, stdin=os.devnull, jobs=1, env=queue.env)
            for name, argv in (
                (_PYTHON, [arena.peers.python.path, "-c", "pass"]),
                *((f"stoker {' '.join(words)}", [queue.program, *words]) for words in _VERBS),
            )
        ]
        for contestant in contestants:
            arena.run(contestant)
        samples = interleave(contestants, arena.rounds, arena.run, arena.progress)
    walls = {name: [run.wall_s for run in runs] for name, runs in samples.items()}
    rows = []
    for name, values in walls.items():
        wall_ms = spread(values).scaled(1e3)
        rows.append([name, f"{wall_ms.median:.1f} ({wall_ms.q1:.1f} – {wall_ms.q3:.1f})"])
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
