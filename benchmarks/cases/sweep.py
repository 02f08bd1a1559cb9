"""A sweep of a million runs: expanding it, and queueing it at a busy daemon."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

from benchmarks.arena import command_line, say
from benchmarks.errors import BenchError
from benchmarks.measure import Contestant, Sample, spread
from benchmarks.proc import Watch
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.arena import Arena

RUNS = 1_000_000
ROUNDS = 3
SWEEP = """\
name: million
command: python train.py --width {width} --depth {depth} --lr {lr} --out {dir}
parameters:
  width: range(100)
  depth: range(100)
  lr: linspace(0, 1, 100)
dir: DIR/{id}
"""


def run(arena: Arena) -> Result:
    """Queue the same million in three queues of their own."""
    seen = [_round(arena) for _ in range(ROUNDS)]
    contestant = seen[0][0]
    walls = spread([sample.wall_s for _contestant, sample, _watch in seen])
    peaks = spread([watch.main_peak_bytes / 1e6 for _contestant, _sample, watch in seen])
    rows = [
        [
            f"{number}",
            f"{sample.wall_s:.1f}",
            f"{sample.cpu_s:.1f}",
            f"{watch.main_peak_bytes / 1e6:.0f}",
        ]
        for number, (_contestant, sample, watch) in enumerate(seen, start=1)
    ]
    return Result(
        name="sweep",
        what=f"`stoker sweep` with {RUNS:,} runs, from its start to its exit.",
        details=Table(("round", "s", "CPU s of the client", "peak MB of the client"), rows),
        figures=[
            Figure(
                name="expanded and queued",
                spread=walls,
                target=Target(Bound.AT_MOST, 20.0),
                unit="s",
                digits=1,
            ),
            Figure(
                name="peak memory",
                spread=peaks,
                target=Target(Bound.AT_MOST, 300.0),
                unit="MB",
                digits=0,
            ),
        ],
        commands=[command_line(contestant)],
    )


def _round(arena: Arena) -> tuple[Contestant, Sample, Watch]:
    say(f"  {RUNS} runs")
    stoker = arena.peers.stoker.path
    with arena.home() as env:
        _ask(env, stoker, "daemon", "start", "--gpus", "0")
        try:
            _ask(env, stoker, "add", "sleep", "3600")  # the queue waits behind it
            path = os.path.join(arena.folder, "sweep.yaml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(SWEEP.replace("DIR", os.path.join(env["STOKER_HOME"], "results")))
            contestant = Contestant(
                name="stoker",
                argv=[stoker, "sweep", "-f", path],
                stdin=os.devnull,
                jobs=RUNS,
                env=env,
                timeout_s=600.0,
            )
            return contestant, *_measure(contestant)
        finally:
            _ask(env, stoker, "daemon", "stop", "--kill")


def _measure(contestant: Contestant) -> tuple[Sample, Watch]:
    """Run a contestant beside the daemon, which is meant to outlive it."""
    watch = Watch()
    started_s = time.monotonic()
    with subprocess.Popen(
        contestant.argv, env=dict(contestant.env), stdout=subprocess.DEVNULL
    ) as process:
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            watch(process.pid)
            time.sleep(0.05)
        wall_s = time.monotonic() - started_s
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BenchError(f"stoker sweep failed with {process.returncode}")
    cpu_s = usage.ru_utime + usage.ru_stime
    return Sample(jobs=contestant.jobs, wall_s=wall_s, cpu_s=cpu_s), watch


def _ask(env: Mapping[str, str], *words: str) -> None:
    subprocess.run(words, env=dict(env), check=True, stdout=subprocess.DEVNULL)
