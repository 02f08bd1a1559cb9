"""Measures how fast a training leaves its GPU and comes back: `stoker suspend` and `stoker resume`.

    PYTHONPATH=src python3 benchmarks/gpu_suspend.py

Trains with PyTorch on a real GPU through a daemon, and compares the losses with those of an undisturbed run.
Takes about three minutes. `--gib` sets the memory that the training holds, `--rounds` how often it is
suspended. `--dry` checks itself on any machine with gcc, over fake GPUs, a fake driver and a fake training.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks.machine import describe_machine
from benchmarks.measure import spread
from benchmarks.report import Bound, Figure, Result, Table, Target, render_result, render_table
from stoker.engine.launch_spec import own_log_path
from stoker.gpus.driver import GpuDriver
from stoker.gpus.drivers import open_driver
from stoker.gpus.nvml import Nvml
from stoker.testing.library import build, build_cuda
from stoker.testing.state import GIB, FakeGpus

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORK = os.path.join(ROOT, "benchmarks", "gpu_suspend_work.py")
NAME = "gpu_suspend"
FREE_WITHIN_S = 5.0
GO_ON_WITHIN_S = 5.0
_PATIENCE_S = 180.0
_POLL_S = 0.01
_STEP = re.compile(r"^step (\d+)/", re.MULTILINE)
_LOSS = re.compile(r"^(step \d+/\d+ loss \S+)", re.MULTILINE)


@dataclass
class Times:
    """Seconds of each round, and the GPU memory around them."""

    free_s: list[float] = field(default_factory=list)
    returned_s: list[float] = field(default_factory=list)
    next_step_s: list[float] = field(default_factory=list)
    held_bytes: int = 0
    left_bytes: int = 0


@dataclass
class Bench:
    """An environment with one GPU, and the training."""

    env: dict[str, str]
    folder: str
    gib: float
    dry: bool

    def command(self, steps: int, wait_s: float) -> str:
        """The training as a shell line; `wait_s` is the pause after each step."""
        if self.dry:
            words = ["-m", "stoker.testing.train", "--mem", f"{self.gib}G", "--steps", str(steps)]
            return shlex.join(
                [sys.executable, *words, "--seconds", str(steps * max(wait_s, 0.001))]
            )
        words = [WORK, str(steps), "--gib", str(self.gib), "--wait", str(wait_s)]
        return shlex.join([sys.executable, *words])

    def stoker(self, *words: str) -> str:
        """The output of a verb, which must succeed."""
        command = [sys.executable, "-m", "stoker", *words]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{NAME}: stoker {words[0]} failed: {done.stderr.strip()}")
        return done.stdout

    def log(self, job: str) -> str:
        """What the training has printed."""
        try:
            with open(own_log_path(self.env["STOKER_HOME"], int(job), 1), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:  # it has not begun
            return ""

    def last_step(self, job: str) -> int:
        """The step that was printed last; 0 if there is none."""
        found = _STEP.findall(self.log(job))
        return int(found[-1]) if found else 0


def main() -> int:
    """Measure; 0 if every figure holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="with fake GPUs, for a self-check")
    parser.add_argument("--gib", type=float, default=10.0, help="memory that the training holds")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stoker-gpu-") as folder:
        bench = prepare(folder, args.gib, dry=args.dry)
        nvml = Nvml()
        bench.stoker("daemon", "start", "--gpus", "0")
        try:
            result = measure(bench, nvml, args.rounds)
        finally:
            bench.stoker("daemon", "stop", "--kill")
            nvml.close()
    text = f"{render_result(result)}\n{render_table(describe_machine('–'))}\n"
    print(text, flush=True)
    if os.environ.get("OUT"):
        with open(os.path.join(os.environ["OUT"], f"{NAME}.md"), "w", encoding="utf-8") as file:
            file.write(text)
    return 0 if all(figure.holds for figure in result.figures) else 1


def prepare(folder: str, gib: float, *, dry: bool) -> Bench:
    """An environment in which `python -m stoker` runs from here, wherever here is."""
    paths = [os.path.join(ROOT, "src"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ["STOKER_LEASE_DIR"] = os.path.join(folder, "leases")
    os.environ["STOKER_HOME"] = os.path.join(folder, "home")
    if dry:
        library = os.path.join(folder, "lib")
        build(library)
        build_cuda(library)
        box = FakeGpus(os.path.join(folder, "gpus"), library).create(1, 80 * GIB)
        # The loader reads its path once, so this process uses the fake that needs no library.
        os.environ.update(FakeGpus(box.folder).env())
        return Bench({**os.environ, **box.env()}, folder, min(gib, 1.0), dry)
    if open_driver() is None:
        raise SystemExit(f"{NAME}: no GPU here (NVML finds none); --dry needs none")
    return Bench(dict(os.environ), folder, gib, dry)


def measure(bench: Bench, nvml: GpuDriver, rounds: int) -> Result:
    """Suspend and resume one training again and again; compare it with an undisturbed one."""
    steps, wait_s = 100 + 100 * rounds, 0.05
    idle_bytes = _used(nvml)
    job = bench.stoker("add", "-q", bench.command(steps, wait_s)).strip()
    until(lambda: bench.last_step(job) > 10, "the training makes no steps")
    times = Times(held_bytes=_used(nvml))
    for number in range(rounds):
        sys.stderr.write(f"{NAME}: round {number + 1} of {rounds} …\n")
        disturb(bench, nvml, job, times, idle_bytes)
    bench.stoker("wait", job)
    whole = bench.stoker("add", "-q", bench.command(steps, 0.0)).strip()
    bench.stoker("wait", whole)
    disturbed, undisturbed = (_LOSS.findall(bench.log(each)) for each in (job, whole))
    differ = sum(one != other for one, other in zip(disturbed, undisturbed, strict=False))
    differ += abs(len(disturbed) - len(undisturbed)) + (len(undisturbed) != steps)
    return report(bench, times, differ, steps)


def disturb(bench: Bench, nvml: GpuDriver, job: str, times: Times, idle_bytes: int) -> None:
    """One suspension, and the way back."""
    began = time.monotonic()
    command = [sys.executable, "-m", "stoker", "suspend", job]
    pipe = subprocess.PIPE
    suspending = subprocess.Popen(command, env=bench.env, stdout=pipe, stderr=pipe)
    enough = idle_bytes + (times.held_bytes - idle_bytes) // 20
    until(lambda: _used(nvml) <= enough or suspending.poll(), "the memory is not freed")
    times.free_s.append(time.monotonic() - began)
    _out, said = suspending.communicate(timeout=_PATIENCE_S)
    if suspending.returncode:
        raise SystemExit(f"{NAME}: stoker suspend failed: {said.decode().strip()}")
    times.returned_s.append(time.monotonic() - began)
    times.left_bytes = _used(nvml)
    before = bench.last_step(job)
    began = time.monotonic()
    bench.stoker("resume", job)
    until(lambda: bench.last_step(job) > before, "the training does not go on")
    times.next_step_s.append(time.monotonic() - began)
    until(lambda: bench.last_step(job) > before + 10, "the training stops again")


def until(fact: Callable[[], object], problem: str) -> None:
    """Wait for a fact; it is an error if it takes too long."""
    deadline = time.monotonic() + _PATIENCE_S
    while not fact():
        if time.monotonic() > deadline:
            raise SystemExit(f"{NAME}: {problem} within {_PATIENCE_S:g} s")
        time.sleep(_POLL_S)


def report(bench: Bench, times: Times, differ: int, steps: int) -> Result:
    """The seconds beside their targets."""
    rows = [
        [str(number + 1), *(f"{value:.2f} s" for value in row)]
        for number, row in enumerate(
            zip(times.free_s, times.returned_s, times.next_step_s, strict=True)
        )
    ]
    figures = [
        _figure("GPU memory free after", times.free_s, FREE_WITHIN_S, "s"),
        _figure("next step after resume", times.next_step_s, GO_ON_WITHIN_S, "s"),
        _figure("losses that differ from an undisturbed run", [float(differ)], 0.0, "steps"),
    ]
    held, left = times.held_bytes / 2**20, times.left_bytes / 2**20
    return Result(
        name=NAME,
        what=f"A training of {steps} steps that holds {bench.gib:g} GiB, suspended and resumed through"
        f" the daemon. GPU memory in use: {held:,.0f} MiB before, {left:,.0f} MiB while suspended.",
        details=Table(
            ("round", "memory free", "`stoker suspend` returned", "next step after resume"), rows
        ),
        figures=figures,
        commands=["python3 benchmarks/gpu_suspend.py"],
    )


def _figure(name: str, values: list[float], most: float, unit: str) -> Figure:
    target = Target(Bound.AT_MOST, most)
    return Figure(name=name, spread=spread(values), target=target, unit=unit, digits=2)


def _used(nvml: GpuDriver) -> int:
    return nvml.read(nvml.gpus()[0]).mem_used_bytes


if __name__ == "__main__":
    sys.exit(main())
