"""Real Slurm: the time until a pilot is usable, and jobs in pilots compared with an array of Slurm's."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import time
from typing import TYPE_CHECKING

from benchmarks.arena import say
from benchmarks.cases.cluster import add_tests_to_path, time_stoker
from benchmarks.errors import BenchError
from benchmarks.measure import spread
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.arena import Arena
    from cluster.slurm_fixture import PilotLab

PILOTS, GPUS = 2, 4
JOBS, TASKS = 1000, 50
LINE = "true"
USABLE_S, PACE = 10.0, 100.0
MOST_ROUNDS = 3
_PATIENCE_S = 300.0
_POLL_S = 0.02


def run(arena: Arena) -> Result:
    """Start pilots, run jobs in them, and run the same as an array of jobs of Slurm's own."""
    if importlib.util.find_spec("ray") is None:
        raise BenchError("the slurm benchmark needs Ray: make .venv/.cluster")
    rounds = min(arena.rounds, MOST_ROUNDS)
    lines = os.path.abspath(arena.lines("slurm", LINE, JOBS))
    library = os.path.abspath(os.path.join(arena.folder, "nvml"))
    usable, stoker, array = [], [], []
    for number in range(rounds):
        with _open_lab(library) as lab:
            array.append(_time_array(lab) / TASKS)
            usable += _start_pilots(lab)
            time_stoker(lab.hosts, lines)  # what every first job needs is loaded
            stoker.append(time_stoker(lab.hosts, lines) / JOBS)
        say(
            f"  round {number + 1}: usable after {max(usable):.1f} s,"
            f" {1e3 * stoker[-1]:.1f} ms for a job in a pilot, {1e3 * array[-1]:.0f} ms as Slurm's"
        )
    ratios = [of_slurm / of_stoker for of_slurm, of_stoker in zip(array, stoker, strict=True)]
    rows = [
        [str(number), f"{1e3 * of_stoker:.2f}", f"{1e3 * of_slurm:.1f}"]
        for number, (of_stoker, of_slurm) in enumerate(zip(stoker, array, strict=True), 1)
    ]
    return Result(
        name="slurm",
        what=f"Real Slurm over {PILOTS + 1} hosts (namespaces of this machine), with its own defaults for"
        " scheduling. A pilot is usable when jobs can start there, counted from when squeue first shows"
        f" that it runs. {JOBS} `{LINE}` over {PILOTS} pilots of {GPUS} fake GPUs, from `stoker add --batch`"
        f" to the end of `stoker wait`, against an array of {TASKS} jobs of Slurm's with a GPU each;"
        f" {rounds} rounds.",
        details=Table(["round", "ms for a job in pilots", "ms for a job of Slurm's"], rows),
        figures=[
            Figure(
                name="a pilot is usable",
                spread=spread(usable),
                target=Target(Bound.AT_MOST, USABLE_S),
                unit="s",
            ),
            Figure(
                name="jobs in pilots, against an array",
                spread=spread(ratios),
                target=Target(Bound.AT_LEAST, PACE),
            ),
        ],
    )


@contextlib.contextmanager
def _open_lab(library: str) -> Iterator[PilotLab]:
    add_tests_to_path()
    from cluster.netns_hosts import Hosts, why_not
    from cluster.slurm_fixture import PilotLab, Slurm
    from cluster.slurm_fixture import why_not as why_no_slurm

    reason = why_not() or why_no_slurm()
    if reason is not None:
        raise BenchError(reason)
    with Hosts(hosts=PILOTS + 1, gpus=GPUS, library=library) as hosts:
        slurm = Slurm(hosts, quick=False)
        slurm.start()
        yield PilotLab(slurm, 30.0)


def _start_pilots(lab: PilotLab) -> list[float]:
    """Start one pilot after the other. Returns how long each took from its start until it was usable."""
    found = []
    for host in range(1, PILOTS + 1):
        job = lab.submit_pilot(f"--gres=gpu:{GPUS}", f"--nodelist=h{host}")
        while lab.slurm.jobs().get(job) != "RUNNING":
            time.sleep(_POLL_S)
        began = time.monotonic()
        lab.until_pilot(job)
        found.append(time.monotonic() - began)
    return found


def _time_array(lab: PilotLab) -> float:
    """Return how long an array of jobs takes in Slurm."""
    began = time.monotonic()
    words = [f"--array=1-{TASKS}", "--gres=gpu:1", "--output=/dev/null", f"--wrap={LINE}"]
    lab.slurm.run(0, "sbatch", "--parsable", *words)
    while lab.slurm.jobs():
        if time.monotonic() > began + _PATIENCE_S:
            raise BenchError("Slurm has not run its array")
        time.sleep(_POLL_S)
    return time.monotonic() - began
