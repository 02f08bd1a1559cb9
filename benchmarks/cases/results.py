"""The table of a sweep of ten thousand runs, from command to last line, compared with plain reading."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from benchmarks.arena import command_line
from benchmarks.measure import Contestant, interleave, ratios, spread
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

RUNS = 10_000
SEEDS = 100
# The floor: both files of each run, read and understood, and nothing made of them.
READ = """
import json, os, sys
for entry in os.scandir(sys.argv[1]):
    with open(entry.path + "/params.json") as file:
        json.load(file)
    with open(entry.path + "/metrics.jsonl") as file:
        [json.loads(line) for line in file]
"""


def run(arena: Arena) -> Result:
    """Read the same folders with both, in turns."""
    folder = os.path.join(arena.folder, "sweep")
    _fill(folder)
    with arena.home() as env:
        contestants = [
            Contestant(name=name, argv=argv, stdin=os.devnull, jobs=1, env=env)
            for name, argv in (
                ("read alone", [arena.peers.python.path, "-c", READ, folder]),
                ("stoker results", [arena.peers.stoker.path, "results", folder]),
                (
                    "stoker results --over",
                    [arena.peers.stoker.path, "results", folder, "--over", "seed"],
                ),
            )
        ]
        samples = interleave(contestants, arena.rounds, arena.run, arena.progress)
    shutil.rmtree(folder)
    walls = {name: [run.wall_s for run in runs] for name, runs in samples.items()}
    seen = {name: spread(values) for name, values in walls.items()}
    rows = []
    for name, wall in seen.items():
        above = ratios(walls[name], walls["read alone"])
        rows.append(
            [name, f"{wall.median:.2f} ({wall.q1:.2f} – {wall.q3:.2f})", f"{above.median:.2f}"]
        )
    limit = Target(Bound.AT_MOST, 1.0)
    return Result(
        name="results",
        what=f"{RUNS:,} runs with two parameters and five steps each, {arena.rounds} interleaved rounds.",
        details=Table(("contestant", "s (quartiles)", "÷ read alone"), rows),
        figures=[
            Figure(name="every run", spread=seen["stoker results"], target=limit, unit="s"),
            Figure(
                name="means over seeds",
                spread=seen["stoker results --over"],
                target=limit,
                unit="s",
            ),
        ],
        commands=[command_line(contestant) for contestant in contestants],
    )


def _fill(folder: str) -> None:
    """Make what runs leave behind."""
    for number in range(RUNS):
        path = os.path.join(folder, str(number))
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "params.json"), "w", encoding="utf-8") as file:
            file.write(f'{{"lr":{number % SEEDS},"seed":{number // SEEDS}}}')
        with open(os.path.join(path, "metrics.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(f'{{"step":{step},"acc":{number}}}\n' for step in range(5))
