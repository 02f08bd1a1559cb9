"""Is the memory that is set aside for sizes not seen before enough? Sweeps over sizes on a real GPU.

    PYTHONPATH=src python3 benchmarks/gpu_sizes.py [--runs 80] [--seed 0] [--budget 560]

Each sweep draws the sizes of its runs at random, no two alike, in a home that knows nothing. While the runs
go by, this program notes what is set aside for each as it begins, and why. Afterwards it compares that with
the peak that was measured. A run that began with the whole GPU, or with a cap from runs with other
parameters, was not predicted. `--dry` runs it over fake GPUs.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks.machine import describe_machine
from benchmarks.measure import spread
from benchmarks.report import Bound, Figure, Result, Table, Target, render_result, render_table
from stoker.client.client import Client
from stoker.core.lifecycle import State, is_final
from stoker.gpus.nvml import Nvml
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


@dataclass
class Seen:
    """What a sweep has shown: real ÷ set aside of each predicted run, and the runs that were not."""

    used: list[float] = field(default_factory=list)
    caps: int = 0
    whole: int = 0
    again: int = 0
    failed: int = 0
    peaks: list[int] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def too_small(self) -> int:
        """How many predicted runs took more than was set aside for them."""
        return sum(part > 1.0 for part in self.used)


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
        elif Nvml.open() is None:
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
    return 0 if all(figure.holds for figure in result.figures) else 1


def measure(sweep: Sweep, runs: int, draw: random.Random, folder: str, *, dry: bool) -> Seen:
    """Let the runs of a sweep go by, in a home of its own."""
    home = tempfile.mkdtemp(dir=folder)
    os.environ["STOKER_HOME"] = os.path.join(home, "stoker")
    stoker = [sys.executable, "-m", "stoker"]
    subprocess.run([*stoker, "daemon", "start"], cwd=home, check=True)
    began = time.monotonic()
    try:
        words = [
            *stoker,
            "sweep",
            "--name",
            "sizes",
            _command(sweep, dry=dry),
            _drawn(sweep, runs, draw),
        ]
        subprocess.run(words, cwd=home, check=True)
        with Client() as client:
            set_aside = dict(_watch(client))
            jobs = [client.show(job.id) for job in client.jobs()]
    finally:
        subprocess.run([*stoker, "daemon", "stop", "--kill"], cwd=home, check=False)
    seen = _judge(jobs, set_aside)
    seen.took_s = time.monotonic() - began
    return seen


def _command(sweep: Sweep, *, dry: bool) -> str:
    if dry:
        first, second = sweep.draw
        fake = "-m stoker.testing.train --steps 2 --seconds 0.6"
        return f"OTHER={{{second}}} {sys.executable} {fake} --mem {{{first}}}M"
    values = " ".join(f"--{name} {{{name}}}" for name in sweep.draw)
    return f"{sys.executable} {WORK} {sweep.kind} {sweep.fixed} {values}"


def _drawn(sweep: Sweep, runs: int, draw: random.Random) -> str:
    """The values of all runs, no two alike, as an argument of `stoker sweep`."""
    found: dict[tuple[float, ...], None] = {}
    while len(found) < runs:
        found[tuple(choose(draw) for choose in sweep.draw.values())] = None
    columns = [",".join(f"{value:.7g}" for value in column) for column in zip(*found, strict=True)]
    return f"{','.join(sweep.draw)}=zip({', '.join(f'[{column}]' for column in columns)})"


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


def _judge(jobs: Sequence[JobDetail], set_aside: dict[int, tuple[int, str]]) -> Seen:
    seen = Seen()
    for job in jobs:
        seen.failed += job.state is not State.DONE
        seen.again += len(job.attempts) > 1
        peak = max(
            (each.gpu_use.mem_peak_bytes or 0 for each in job.attempts if each.gpu_use), default=0
        )
        seen.peaks.append(peak)
        reserved, because = set_aside.get(job.id, (0, "whole"))
        if "whole GPU" in because or not reserved:
            seen.whole += 1
        elif because.startswith(_A_CAP):
            seen.caps += 1
        elif peak:
            seen.used.append(peak / reserved)
    return seen


def _describe(seen: Seen) -> str:
    gib = [peak / GIB for peak in seen.peaks]
    part = f"{spread(seen.used).median:.2f} (at most {max(seen.used):.3f})" if seen.used else "–"
    return (
        f"{len(seen.peaks)} runs of {min(gib):.2f} to {max(gib):.2f} GiB in {seen.took_s:.0f} s; "
        f"{len(seen.used)} predicted, {seen.too_small} too small; real ÷ set aside {part}; "
        f"{seen.caps} with a cap, {seen.whole} alone, {seen.again} ran again, {seen.failed} failed"
    )


def report(seen: dict[str, Seen]) -> Result:
    """The figures over all sweeps, and a table of each."""
    predicted = sum(len(each.used) for each in seen.values())
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
