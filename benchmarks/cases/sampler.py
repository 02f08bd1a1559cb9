"""Cost of GPU monitoring: the sampler with 8 GPUs and 32 jobs, or one on each, as a share of one core."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
import threading
import time
from typing import TYPE_CHECKING

import pynvml

from benchmarks.measure import spread
from benchmarks.report import Bound, Figure, Result, Table, Target
from stoker.core.job import Attempt, Request
from stoker.core.slot import Slot
from stoker.engine.gpu_monitor import GpuMonitor
from stoker.engine.queue import QueueEntry
from stoker.engine.running_attempt import Running, RunningAttempt
from stoker.engine.slots import SlotTable
from stoker.gpus.driver import GpuDriver
from stoker.gpus.nvml import Nvml
from stoker.gpus.sampler import Sampler, peek_pause_s
from stoker.testing.library import build
from stoker.testing.state import GIB, FakeGpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.arena import Arena

GPUS = 8
JOBS = 32
MINUTE_S = 60
ALONE_S = 10
DRIVER_S = 12e-6
ROUNDS = 5
_LIMIT_PCT = 0.5
# By then the list of processes is read as seldom as it ever is.
_SETTLED_S = 700


def run(arena: Arena) -> Result:
    """Count the CPU time of looks: for minutes on a clock of our own, and for seconds on the real one."""
    rounds = 2 if arena.quick else ROUNDS
    with tempfile.TemporaryDirectory(dir=arena.folder) as folder:
        new, settled, alone = zip(*_shares(folder, rounds), strict=True)
    rows = [
        [f"{JOBS} jobs that are new", _pct(new)],
        [f"{JOBS} jobs that have settled", _pct(settled)],
        [f"{GPUS} new jobs, each alone on its GPU", _pct(alone)],
    ]
    return Result(
        name="sampler",
        what=f"{GPUS} GPUs, {rounds} rounds. {JOBS} jobs: CPU time of a minute of looks, one each second."
        f" Jobs alone on their GPUs: CPU time of the sampler's thread in {ALONE_S} s.",
        details=Table(("of", "% of a core (quartiles)"), rows),
        figures=[
            Figure(
                name="sampler, jobs that have settled",
                spread=spread(settled),
                target=Target(Bound.AT_MOST, _LIMIT_PCT),
                unit="%",
            ),
            Figure(
                name="sampler, new jobs alone on their GPUs",
                spread=spread(alone),
                target=Target(Bound.AT_MOST, _LIMIT_PCT),
                unit="%",
            ),
        ],
        notes=[
            "Through pynvml, over the fake library in C: a real driver's own time comes on top.",
            f"12 µs for each reading, as an H200's driver takes, make new jobs {_driver_pct():.2f} % dearer.",
        ],
    )


def _pct(values: tuple[float, ...]) -> str:
    found = spread(values)
    return f"{found.median:.3f} ({found.q1:.3f} – {found.q3:.3f})"


def _driver_pct() -> float:
    return 100 * GPUS * DRIVER_S / peek_pause_s(GPUS)


def _shares(folder: str, rounds: int) -> Iterator[tuple[float, float, float]]:
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
            yield new, _minute(sampler, now), _alone(nvml, jobs)
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


def _alone(nvml: GpuDriver, jobs: list[subprocess.Popen[bytes]]) -> float:
    """Monitor a new job on each GPU as a daemon does, in real time. Each has several processes."""
    slots = [Slot(n, (str(n),), (gpu.uuid,)) for n, gpu in enumerate(nvml.gpus())]
    slot_table = SlotTable(tuple(slots))
    owners = {job.pid: f"{number % GPUS}.1" for number, job in enumerate(jobs)}
    for number, slot in enumerate(slots):
        attempt = Attempt(number, 1)
        running = RunningAttempt(
            key=attempt.key,
            attempt=attempt,
            entry=QueueEntry(b"train", Request()),
            slots=(slot,),
            phase=Running(jobs[number].pid, time.time_ns() // 1000),
        )
        slot_table.occupy(running)
    monitor = GpuMonitor(nvml, slot_table, lambda _text: None, owners.get, mind_others=True)
    (thread,) = [each for each in threading.enumerate() if each.name == "gpu-sampler"]
    assert thread.ident is not None
    clock = time.pthread_getcpuclockid(thread.ident)
    began_s = time.clock_gettime(clock)
    time.sleep(ALONE_S)
    took_s = time.clock_gettime(clock) - began_s
    monitor.stop()
    return 100 * took_s / ALONE_S
