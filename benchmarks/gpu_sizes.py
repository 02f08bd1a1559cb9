"""Is the memory that is set aside for sizes not seen before enough? Sweeps over sizes on a real GPU.

    PYTHONPATH=src python3 benchmarks/gpu_sizes.py [--runs 80] [--seed 0] [--budget 560]

Each training is swept twice, in a home that knows nothing at first: a quarter of the runs, then the others.
Their sizes are drawn at random, no two alike. While the runs go by, this program notes what is set aside for
each as it begins, and why. Afterwards it compares that with the peak that was measured. A run that began with
the whole GPU, or with a cap from runs with other parameters, was not predicted. `--dry` takes fake GPUs.
With OUT set, a file there has the parameters, the peak and what was set aside of each run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks.machine import describe_machine
from benchmarks.measure import spread
from benchmarks.report import Bound, Figure, Result, Table, Target, render_result, render_table
from stoker.client.client import Client
from stoker.core.lifecycle import State, is_final
from stoker.gpus.drivers import open_driver
from stoker.testing.state import GIB, FakeGpus
from stoker.wire import JobDetail

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAME = "gpu_sizes"
WORK = os.path.join(ROOT, "benchmarks", "gpu_sizes_work.py")
MOST_TOO_SMALL_PCT = 1.0
_POLL_S = 0.05
_A_CAP = "a cap:"


@dataclass(frozen=True)
class Sweep:
    """A training, and how the values of its parameters are drawn."""

    name: str
    kind: str
    draw: dict[str, Callable[[random.Random], float]]
    fixed: str = ""


def _between(low: int, high: int, step: int = 1) -> Callable[[random.Random], float]:
    return lambda draw: draw.randrange(low, high + 1, step)


def _rate(draw: random.Random) -> float:
    return round(10 ** draw.uniform(-5, -2), 7)


SWEEPS = (
    Sweep("batch × length", "transformer", {"bs": _between(4, 96), "length": _between(32, 512, 8)}),
    Sweep(
        "width × layers",
        "transformer",
        {"width": _between(128, 1024, 64), "layers": _between(2, 12)},
    ),
    Sweep("batch × learning rate", "transformer", {"bs": _between(4, 256), "lr": _rate}),
    Sweep(
        "batch × side of the image",
        "cnn",
        {"bs": _between(8, 128), "side": _between(24, 128, 4)},
        "--width 64",
    ),
    Sweep("batch × width", "mlp", {"bs": _between(64, 8192, 64), "width": _between(256, 4096, 64)}),
)


@dataclass(frozen=True)
class Run:
    """What was set aside for a run as it began, and what it took."""

    sizes: tuple[float, ...]
    peak_bytes: int
    reserved_bytes: int
    because: str
    attempts: int
    is_done: bool

    @property
    def had_all(self) -> bool:
        """Whether it began with the whole GPU."""
        return not self.reserved_bytes or "whole GPU" in self.because

    @property
    def had_cap(self) -> bool:
        """Whether it began with a cap from runs with other parameters."""
        return self.because.startswith(_A_CAP)

    @property
    def used(self) -> float:
        """Its peak, as a part of what was set aside."""
        return self.peak_bytes / self.reserved_bytes


@dataclass
class Seen:
    """The runs of a training."""

    runs: list[Run]
    took_s: float

    @property
    def predicted(self) -> list[Run]:
        """The runs whose memory was predicted."""
        return [run for run in self.runs if not (run.had_all or run.had_cap)]

    @property
    def too_small(self) -> int:
        """How many predicted runs took more than was set aside for them."""
        return sum(run.used > 1.0 for run in self.predicted)

    @property
    def failed(self) -> int:
        """How many runs failed for good."""
        return sum(not run.is_done for run in self.runs)


def main() -> int:
    """Measure; 0 if hardly any prediction was too small."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="over fake GPUs")
    parser.add_argument("--runs", type=int, default=80, help="of each sweep")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=560.0, help="seconds at most")
    args = parser.parse_args()
    until_s = time.monotonic() + args.budget
    seen: dict[str, Seen] = {}
    with tempfile.TemporaryDirectory(prefix="stoker-gpu-", ignore_cleanup_errors=True) as folder:
        os.environ["STOKER_LEASE_DIR"] = os.path.join(folder, "leases")
        paths = [os.path.join(ROOT, "src"), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        if args.dry:
            os.environ.update(FakeGpus(f"{folder}/gpus").create(1, 80 * GIB).env())
        elif open_driver() is None:
            raise SystemExit(f"{NAME}: no GPU here (NVML finds none); --dry needs none")
        for number, sweep in enumerate(SWEEPS):
            longest_s = max((each.took_s for each in seen.values()), default=0.0)
            if time.monotonic() + longest_s >= until_s:
                break
            draw = random.Random(1000 * args.seed + number)
            seen[sweep.name] = measure(sweep, args.runs, draw, folder, dry=args.dry)
            print(f"{sweep.name}: {_describe(seen[sweep.name])}", flush=True)
    result = report(seen)
    text = f"{render_result(result)}\n{render_table(describe_machine('–'))}\n"
    print(text, flush=True)
    if os.environ.get("OUT"):
        with open(os.path.join(os.environ["OUT"], f"{NAME}.md"), "w", encoding="utf-8") as file:
            file.write(text)
        with open(os.path.join(os.environ["OUT"], f"{NAME}.json"), "w", encoding="utf-8") as file:
            runs = {name: [asdict(run) for run in each.runs] for name, each in seen.items()}
            json.dump(runs, file, indent=1)
    return 0 if all(figure.holds for figure in result.figures) else 1


def measure(sweep: Sweep, runs: int, draw: random.Random, folder: str, *, dry: bool) -> Seen:
    """Let the runs of both sweeps of a training go by, in a home of its own."""
    home = tempfile.mkdtemp(dir=folder)
    os.environ["STOKER_HOME"] = os.path.join(home, "stoker")
    stoker = [sys.executable, "-m", "stoker"]
    subprocess.run([*stoker, "daemon", "start"], cwd=home, check=True)
    began = time.monotonic()
    sizes = _draw(sweep, runs, draw)
    set_aside: dict[int, tuple[int, str]] = {}
    try:
        with Client() as client:
            for name, part in (("first", sizes[: runs // 4]), ("second", sizes[runs // 4 :])):
                columns = (
                    ",".join(f"{value:.7g}" for value in each) for each in zip(*part, strict=True)
                )
                given = f"{','.join(sweep.draw)}=zip({', '.join(f'[{each}]' for each in columns)})"
                words = [*stoker, "sweep", "--name", name, _command(sweep, dry=dry), given]
                subprocess.run(words, cwd=home, check=True)
                set_aside.update(_watch(client))
            jobs = sorted((client.show(job.id) for job in client.jobs()), key=lambda job: job.id)
    finally:
        subprocess.run([*stoker, "daemon", "stop", "--kill"], cwd=home, check=False)
    judged = [
        _judge(job, each, *set_aside.get(job.id, (0, "")))
        for job, each in zip(jobs, sizes, strict=True)
    ]
    return Seen(judged, time.monotonic() - began)


def _command(sweep: Sweep, *, dry: bool) -> str:
    if dry:
        first, second = sweep.draw
        fake = "-m stoker.testing.train --steps 2 --seconds 0.6"
        return f"OTHER={{{second}}} {sys.executable} {fake} --mem {{{first}}}M"
    values = " ".join(f"--{name} {{{name}}}" for name in sweep.draw)
    return f"{sys.executable} {WORK} {sweep.kind} {sweep.fixed} {values}"


def _draw(sweep: Sweep, runs: int, draw: random.Random) -> list[tuple[float, ...]]:
    """The parameters of all runs, no two alike."""
    found: dict[tuple[float, ...], None] = {}
    while len(found) < runs:
        found[tuple(choose(draw) for choose in sweep.draw.values())] = None
    return list(found)


def _watch(client: Client) -> Iterator[tuple[int, tuple[int, str]]]:
    """Yield for each run what was set aside as it began and why, until all have ended."""
    told: set[int] = set()
    while True:
        jobs = list(client.jobs())
        for job in jobs:
            if job.reserved_bytes is None or job.id in told:
                continue
            told.add(job.id)
            because = client.show(job.id).reserved_because
            yield job.id, (job.reserved_bytes, because or "")
        if all(is_final(job.state) for job in jobs):
            return
        time.sleep(_POLL_S)


def _judge(job: JobDetail, sizes: tuple[float, ...], reserved_bytes: int, because: str) -> Run:
    peaks = [each.gpu_use.mem_peak_bytes or 0 for each in job.attempts if each.gpu_use]
    return Run(
        sizes=sizes,
        peak_bytes=max(peaks, default=0),
        reserved_bytes=reserved_bytes,
        because=because,
        attempts=len(job.attempts),
        is_done=job.state is State.DONE,
    )


def _describe(seen: Seen) -> str:
    gib = [run.peak_bytes / GIB for run in seen.runs]
    used = [run.used for run in seen.predicted]
    part = f"{spread(used).median:.2f} (at most {max(used):.3f})" if used else "–"
    alone, caps, again = (
        sum(found)
        for found in zip(
            *((run.had_all, run.had_cap, run.attempts > 1) for run in seen.runs), strict=True
        )
    )
    return (
        f"{len(gib)} runs of {min(gib):.2f} to {max(gib):.2f} GiB in {seen.took_s:.0f} s; "
        f"{len(used)} predicted, {seen.too_small} too small; real ÷ set aside {part}; "
        f"{caps} with a cap, {alone} alone, {again} ran again, {seen.failed} failed"
    )


def report(seen: dict[str, Seen]) -> Result:
    """The figures over all sweeps, and a table of each."""
    predicted = sum(len(each.predicted) for each in seen.values())
    too_small = sum(each.too_small for each in seen.values())
    failed = sum(each.failed for each in seen.values())
    return Result(
        name=NAME,
        what="Memory set aside for sizes that no run had before, beside the peak that was measured.",
        details=Table(("sweep", "seen"), [[name, _describe(each)] for name, each in seen.items()]),
        figures=[
            Figure(
                name=f"predictions too small, of {predicted}",
                spread=spread([100 * too_small / max(1, predicted)]),
                target=Target(Bound.LESS_THAN, MOST_TOO_SMALL_PCT),
                unit="%",
            ),
            Figure(
                name="runs that failed for good",
                spread=spread([float(failed)]),
                target=Target(Bound.AT_MOST, 0.0),
                unit="",
            ),
        ],
        commands=[f"python3 benchmarks/{NAME}.py"],
    )


if __name__ == "__main__":
    sys.exit(main())
