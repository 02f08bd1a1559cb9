"""Cost of GPU monitoring: the sampler with 8 GPUs and 32 jobs, as a share of one core."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

import pynvml

from benchmarks.measure import spread
from benchmarks.report import Bound, Figure, Result, Table, Target
from stoker.gpus.nvml import Nvml
from stoker.gpus.sampler import Sampler
from stoker.testing.library import build
from stoker.testing.state import GIB, FakeGpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.arena import Arena

GPUS = 8
JOBS = 32
MINUTE_S = 60
ROUNDS = 5
_LIMIT_PCT = 0.5
# By then the list of processes is read as seldom as it ever is.
_SETTLED_S = 700


def run(arena: Arena) -> Result:
    """Let minutes pass on a clock of our own, and count the CPU time of their looks."""
    rounds = 2 if arena.quick else ROUNDS
    with tempfile.TemporaryDirectory(dir=arena.folder) as folder:
        new, settled = zip(*_shares(folder, rounds), strict=True)
    rows = [["jobs that are new", _pct(new)], ["jobs that have settled", _pct(settled)]]
    return Result(
        name="sampler",
        what=f"{GPUS} GPUs, {JOBS} jobs, {rounds} rounds: CPU time of a minute of looks, one each second.",
        details=Table(("of", "% of a core (quartiles)"), rows),
        figures=[
            Figure(
                name="sampler, jobs that have settled",
                spread=spread(settled),
                target=Target(Bound.AT_MOST, _LIMIT_PCT),
                unit="%",
            )
        ],
        notes=[
            "Through pynvml, over the fake library in C: a real driver's own time comes on top."
        ],
    )


def _pct(values: tuple[float, ...]) -> str:
    found = spread(values)
    return f"{found.median:.3f} ({found.q1:.3f} – {found.q3:.3f})"


def _shares(folder: str, rounds: int) -> Iterator[tuple[float, float]]:
    library = build(os.path.join(folder, "lib"), frozen=True)
    fakes = FakeGpus(os.path.join(folder, "state")).create(GPUS, 80 * GIB)
    os.environ["STOKER_FAKE_NVML"] = fakes.folder
    os.environ.pop("STOKER_NVML_MODULE", None)
    jobs = [subprocess.Popen(["sleep", "3600"]) for _ in range(JOBS)]
    try:
        for number, job in enumerate(jobs):
            fakes.use(job.pid, number % GPUS, 5 * GIB)
        pynvml.nvmlLib = ctypes.CDLL(library)
        nvml = Nvml()
        owners = {job.pid: f"{number}.1" for number, job in enumerate(jobs)}
        keys = [gpu.uuid for gpu in nvml.gpus()]
        running = {f"{number}.1": (keys[number % GPUS],) for number in range(JOBS)}
        for _ in range(rounds):
            now = [0.0]

            def clock(now: list[float] = now) -> float:
                return now[0]

            sampler = Sampler(
                nvml,
                subjects=lambda: running,
                owner_of=owners.get,
                awaits=lambda _gpu_key: True,
                clock=clock,
            )
            new = _minute(sampler, now)
            while now[0] < _SETTLED_S:
                now[0] += 1
                sampler.sample()
            yield new, _minute(sampler, now)
        nvml.close()
    finally:
        for job in jobs:
            job.kill()
            job.wait()


def _minute(sampler: Sampler, now: list[float]) -> float:
    began_s = time.thread_time()
    for _ in range(MINUTE_S):
        now[0] += 1
        sampler.sample()
    return 100 * (time.thread_time() - began_s) / MINUTE_S
