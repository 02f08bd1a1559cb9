"""Time from the start of an attempt to the end of its imports, with and without a warm worker."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

from benchmarks.errors import BenchError
from benchmarks.measure import ratios, spread
from benchmarks.peers import make_environment
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

TORCH = "torch==2.13.0+cpu"
PACKAGES = ("numpy", "pandas", TORCH)
_SCRIPT = """\
import {modules}
import time
now = time.time()
private = 0
with open("/proc/self/smaps_rollup") as file:
    for line in file:
        private += int(line.split()[1]) * 1024 if line.startswith("Private_") else 0
print(now, private)
"""
# What is imported, and how many times faster it has to be.
CASES = {"numpy,pandas": 30.0, "torch": 50.0}
_MOST_PRIVATE_MB = 5.0


def run(arena: Arena) -> Result:
    """Run the same script over and over, cold and warm in turns, on one slot."""
    python = make_environment(os.path.join(arena.folder, "warm"), PACKAGES)
    rows: list[list[str]] = []
    figures: list[Figure] = []
    commands: list[str] = []
    for modules, limit in CASES.items():
        script = os.path.abspath(
            os.path.join(arena.folder, f"{modules.partition(',')[0]}_stamp.py")
        )
        with open(script, "w", encoding="utf-8") as file:
            file.write(_SCRIPT.format(modules=modules))
        lines = arena.lines(f"warm-{modules}", f"{python} {script}", 2 * arena.rounds + 1)
        words = [arena.peers.stoker.path, "run", lines, "--gpus", "0", "--json"]
        cold, _private = _measure(arena, words)
        warm, private = _measure(arena, [*words, "--warm", modules])
        for name, values in (("fresh", cold), ("forked", warm)):
            ms = spread(values).scaled(1e3)
            rows.append([modules, name, f"{ms.median:.1f} ({ms.q1:.1f} – {ms.q3:.1f})"])
        figures.append(
            Figure(
                name=f"import {modules}: time to first statement, fresh ÷ forked",
                spread=ratios(cold, warm),
                target=Target(Bound.AT_LEAST, limit),
                digits=0,
            )
        )
        figures.append(
            Figure(
                name=f"import {modules}: private memory of a fork",
                spread=spread([each / 2**20 for each in private]),
                target=Target(Bound.AT_MOST, _MOST_PRIVATE_MB),
                unit="MiB",
                digits=1,
            )
        )
        commands.append(" ".join([*words, "--warm", modules]))
    return Result(
        name="warm",
        what=f"{2 * arena.rounds} runs each, one after another; the first, which waits for the worker,"
        " is not counted.",
        details=Table(("imports", "process", "ms from start (quartiles)"), rows),
        figures=figures,
        commands=commands,
    )


def _measure(arena: Arena, words: list[str]) -> tuple[list[float], list[float]]:
    """Seconds from each start to the first statement, and bytes of private memory then."""
    with arena.home() as env:
        done = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
        if done.returncode:
            raise BenchError(f"{' '.join(words)}: {done.stderr.strip()[-300:]}")
        if "cold" in done.stderr:
            raise BenchError(f"not forked: {done.stderr.strip()[-300:]}")
        starts = [json.loads(line) for line in done.stdout.splitlines()]
        delays: list[float] = []
        private: list[float] = []
        for event in starts:
            if event["event"] == "start":
                with open(event["log"], encoding="ascii") as file:
                    now, held = file.read().split()
                delays.append(float(now) - event["at"])
                private.append(float(held))
    return delays[1:], private[1:]
