"""Compares one run at a time with sharing, on a real GPU with PyTorch.

    PYTHONPATH=src python benchmarks/gpu_sharing.py --warm

Takes at most nine minutes, in which it goes round and round: what matters most comes first, each makespan
is printed when it is known, and the table so far is kept in RESULTS.md and, where a folder is named in $OUT,
there. With `--times FILE` it goes on from what was measured before, with the same work. `--warm` measures
also what is forked from a process that has imported torch. One run at a time is measured with a few of the
runs, for they take their times one after another, and counted for all of them. Every makespan counts all from
the command to the last end: also the first run, alone on the GPU because nothing is known of its kind, and
the worker's imports. Only those called known have both behind them, as has whoever runs a second sweep.
`--dry` checks itself on any machine: fake GPUs, a fake torch, fake trainings, one round, and nothing kept.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks.machine import describe_machine
from benchmarks.measure import Spread, spread
from benchmarks.report import Bound, Figure, Result, Table, Target, render_result, render_table
from benchmarks.sections import replace_section
from stoker.gpus.drivers import open_driver
from stoker.gpus.nvml import Nvml
from stoker.testing.state import GIB, FakeGpus

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAME = "gpu_sharing"
RESULTS = os.path.join(ROOT, "benchmarks", "RESULTS.md")
WORK = os.path.join(ROOT, "benchmarks", "gpu_work.py")
BUDGET_S = 520.0
ROUNDS = 5
_STOP_WITHIN_S = 15.0
MODES = {
    "exclusive": [],
    "shared": ["--share", "auto"],
    "shared with MPS": ["--share", "auto", "--mps"],
    "shared, warm": ["--share", "auto", "--warm", "torch"],
    "shared with MPS, warm": ["--share", "auto", "--mps", "--warm", "torch"],
    "known, shared": ["--share", "auto"],
    "known, shared, warm": ["--share", "auto", "--warm", "torch"],
    "known, shared with MPS, warm": ["--share", "auto", "--mps", "--warm", "torch"],
}
# In these a daemon has seen one run before: what such runs need is known, and a worker has imported.
KNOWN = tuple(mode for mode in MODES if mode.startswith("known"))
WARM_GAINS = (("shared", "shared, warm"), ("known, shared", "known, shared, warm"))
WARM_GAIN = 1.5
# What 16 such runs took on an H200, forked by hand from a process that had imported torch before.
BY_HAND_S = {"known, shared, warm": 12.4, "known, shared with MPS, warm": 6.2}
BY_HAND_FACTOR = 1.3
_FAILED = re.compile(r"^stoker: (?:.*, )?([0-9]+) (?:failed|killed|lost),", re.MULTILINE)


@dataclass(frozen=True)
class Workload:
    """Runs that are started together; `sizes` are shares of the GPU's memory held besides."""

    name: str
    kind: str
    train_s: float
    sizes: Sequence[float]
    modes: Sequence[str]
    at_least: float | None = None
    alone: int | None = None  # how many of the runs stand for all when they go one by one


WORKLOADS = (
    Workload("16 small MLP runs", "mlp", 1.5, [0.0] * 16, tuple(MODES), 5.0, 4),
    Workload(
        "8 CNN runs", "cnn", 2.5, [0.0] * 8, tuple(m for m in MODES if m not in KNOWN), 2.5, 3
    ),
    # The first two do not fit together.
    Workload("mixed sizes", "hog", 2.0, [0.6, 0.55, 0.2, 0.1, 0.1], ("shared",)),
    Workload("3 saturating runs", "saturating", 5.0, [0.0] * 3, ("exclusive", "shared"), 0.97),
)
KINDS = [workload.kind for workload in WORKLOADS]
# Kinds and modes by what they are wanted for: figures to reach first, what has none last.
ORDER = (
    ("mlp", "exclusive"),
    ("mlp", "shared"),
    ("mlp", "shared, warm"),
    ("mlp", "known, shared, warm"),
    ("mlp", "known, shared with MPS, warm"),
    ("mlp", "known, shared"),
    ("cnn", "exclusive"),
    ("cnn", "shared"),
    ("saturating", "exclusive"),
    ("saturating", "shared"),
    ("hog", "shared"),
    ("mlp", "shared with MPS"),
    ("cnn", "shared with MPS"),
    ("mlp", "shared with MPS, warm"),
    ("cnn", "shared, warm"),
    ("cnn", "shared with MPS, warm"),
)


@dataclass
class Times:
    """What was measured: how much work each training does, makespans round by round, final failures."""

    steps: dict[str, int] = field(default_factory=dict)
    makespans_s: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)

    def add(self, workload: Workload, mode: str, makespan_s: float, failed: int) -> None:
        """Take note of one more."""
        self.makespans_s.setdefault(workload.kind, {}).setdefault(mode, []).append(makespan_s)
        self.failed[workload.kind] = self.failed.get(workload.kind, 0) + failed

    def of(self, workload: Workload, mode: str) -> list[float]:
        """The makespans of a workload, of the first round first."""
        return self.makespans_s.get(workload.kind, {}).get(mode, [])

    def gain(self, workload: Workload, mode: str, base: str = "exclusive") -> Spread | None:
        """How many times as fast it is as in another mode, round by round; None if unknown."""
        rounds = zip(self.of(workload, base), self.of(workload, mode), strict=False)
        gains = [slow_s / fast_s for slow_s, fast_s in rounds]
        return spread(gains) if gains else None


@dataclass
class Bench:
    """A GPU, an environment, and the time that is left."""

    env: dict[str, str]
    folder: str
    mem_gib: float
    dry: bool
    times: Times = field(default_factory=Times)
    until_s: float = 0.0

    def commands(self, workload: Workload) -> list[str]:
        """One line for each run."""
        if self.dry:
            train = f"{shlex.quote(sys.executable)} -m stoker.testing.train --steps 2"
            seconds = workload.train_s / 10
            mems = [max(size, 0.01) * self.mem_gib for size in workload.sizes]
            return [f"{train} --seconds {seconds} --mem {mem:.2f}G" for mem in mems]
        words = [sys.executable, WORK, workload.kind, str(self.times.steps[workload.kind])]
        work = shlex.join(words)
        return [f"{work} --gib {int(size * self.mem_gib)}" for size in workload.sizes]

    def calibrate(self) -> None:
        """Find out how much work each training has to do on this GPU."""
        if self.dry or self.times.steps:
            return
        words = [sys.executable, WORK, "calibrate", "1"]
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, check=True)
        per_s = json.loads(done.stdout)
        for workload in WORKLOADS:
            self.times.steps[workload.kind] = int(per_s[workload.kind] * workload.train_s)

    def run(self, workload: Workload, mode: str) -> tuple[float, int]:
        """Seconds from the command to the last end, and how many runs failed for good."""
        home = tempfile.mkdtemp(dir=self.folder)
        jobs = os.path.join(home, "jobs.txt")
        with open(jobs, "w", encoding="utf-8") as file:
            commands = self.commands(workload)
            if mode == "exclusive":
                commands = commands[: workload.alone]
            file.writelines(f"{command}\n" for command in commands)
        if mode in KNOWN:
            return self._run_known(home, jobs, self.commands(workload)[0], MODES[mode])
        words = [sys.executable, "-m", "stoker", "run", jobs, "--gpus", "0", *MODES[mode]]
        words += ["--logs", os.path.join(home, "logs")]
        env = {**self.env, "STOKER_HOME": os.path.join(home, "stoker")}
        began = time.monotonic()
        limit_s = max(1.0, self.until_s - began)
        done = subprocess.run(
            words, env=env, capture_output=True, text=True, timeout=limit_s, check=False
        )
        took_s = (time.monotonic() - began) * len(workload.sizes) / len(commands)
        # What a person should know of, such as a driver that does not tell whose memory it is.
        notices = [
            line
            for line in done.stderr.splitlines()
            if line.startswith(("stoker: GPU", "stoker: MPS"))
        ]
        sys.stderr.write("".join(f"  {line}\n" for line in dict.fromkeys(notices)))
        if done.returncode:
            sys.stderr.write(done.stderr[-2000:])
        counts = _FAILED.findall(done.stderr)
        return took_s, int(counts[-1]) if counts else int(done.returncode != 0)

    def _run_known(
        self, home: str, jobs: str, first: str, options: Sequence[str]
    ) -> tuple[float, int]:
        """The same through a daemon's queue, after one run that is not counted."""
        env = {**self.env, "STOKER_HOME": os.path.join(home, "stoker")}

        def stoker(*words: str, may_fail: bool = False) -> str:
            limit_s = max(_STOP_WITHIN_S, self.until_s - time.monotonic())
            command = [sys.executable, "-m", "stoker", *words]
            done = subprocess.run(
                command,
                env=env,
                stdout=subprocess.PIPE,
                text=True,
                timeout=limit_s,
                check=not may_fail,
            )
            return done.stdout

        stoker("daemon", "start", "--gpus", "0")
        try:
            stoker("add", *options, first)
            stoker("wait", may_fail=True)  # a run may fail: its state is counted below
            began = time.monotonic()
            stoker("add", "--batch", jobs, *options)
            stoker("wait", may_fail=True)
            took_s = time.monotonic() - began
            states = [job["state"] for job in json.loads(stoker("ls", "-a", "--json"))]
        finally:
            stoker("daemon", "stop", "--kill")
        return took_s, sum(state != "done" for state in states)


def main() -> int:
    """Measure; 0 if every figure holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="with fake GPUs, for a self-check")
    parser.add_argument("--warm", action="store_true", help="also forked from warm workers")
    parser.add_argument("--runs", metavar="KIND", help=f"only {', '.join(KINDS)}; nothing is kept")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds at most")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="at most")
    parser.add_argument(
        "--times", metavar="FILE", help="go on from there, and keep makespans there"
    )
    args = parser.parse_args()
    if args.runs not in (None, *KINDS):
        parser.error(f"--runs {args.runs}: there are {', '.join(KINDS)}")
    with tempfile.TemporaryDirectory(prefix="stoker-gpu-") as folder:
        bench = prepare(folder, args.dry)
        if args.times and os.path.exists(args.times):
            with open(args.times, encoding="utf-8") as file:
                bench.times = Times(**json.load(file))
        bench.until_s = time.monotonic() + args.budget
        device = describe_device()
        wanted = [mode for mode in MODES if args.warm or "--warm" not in MODES[mode]]
        chosen = [w for w in WORKLOADS if args.runs in (None, w.kind)]
        modes = [mode for mode in wanted if is_possible(mode)]
        machine = render_table(describe_machine("–"))

        def keep(result: Result) -> None:
            if args.times:
                with open(args.times, "w", encoding="utf-8") as file:
                    json.dump(asdict(bench.times), file)
            text = f"{render_result(result)}\n{machine}\n"
            if os.environ.get("OUT"):
                with open(os.path.join(os.environ["OUT"], f"{NAME}.md"), "w") as file:
                    file.write(text)
            if not args.dry and args.runs is None:
                replace_section(RESULTS, NAME, text)

        rounds = 1 if args.dry else args.rounds
        result = measure(bench, device, modes, chosen, rounds, keep)
    print(f"{render_result(result)}\n{machine}\n", flush=True)
    # What fake trainings gain means nothing; that none of them is lost does.
    judged = [each for each in result.figures if not (args.dry and each.unit == "×")]
    return 0 if all(figure.holds for figure in judged) else 1


def prepare(folder: str, dry: bool) -> Bench:
    """An environment in which `python -m stoker` runs from here, wherever here is."""
    paths = [os.path.join(ROOT, "src"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ["STOKER_LEASE_DIR"] = os.path.join(folder, "leases")
    if dry:
        fake = write_fake_torch(os.path.join(folder, "site"))
        os.environ["PYTHONPATH"] += os.pathsep + fake
        os.environ.update(FakeGpus(os.path.join(folder, "gpus")).create(1, 80 * GIB).env())
    nvml = open_driver()
    if nvml is None or not nvml.gpus():
        raise SystemExit("gpu_sharing: no GPU here (NVML finds none); --dry needs none")
    mem_gib = nvml.gpus()[0].mem_total_bytes / GIB
    nvml.close()
    return Bench(env=dict(os.environ), folder=folder, mem_gib=mem_gib, dry=dry)


def write_fake_torch(folder: str) -> str:
    """A package that takes a moment to import, so that there is something to start warm with."""
    os.makedirs(os.path.join(folder, "torch"))
    for name in ("__init__", "optim", "_dynamo"):
        with open(os.path.join(folder, "torch", f"{name}.py"), "w", encoding="utf-8") as file:
            file.write("import time\ntime.sleep(0.1)\n")
    return folder


def describe_device() -> str:
    """The GPU that was measured on."""
    nvml = Nvml()
    gpu = nvml.gpus()[0]
    nvml.close()
    return f"{gpu.name}, {gpu.mem_total_bytes / GIB:.0f} GiB"


def is_possible(mode: str) -> bool:
    """Whether this Stoker and this machine know a mode."""
    words = [sys.executable, "-m", "stoker", "run", "-h"]
    known = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    if "--mps" in MODES[mode] and shutil.which("nvidia-cuda-mps-control") is None:
        return False
    return all(word in known for word in MODES[mode] if word.startswith("--"))


def measure(
    bench: Bench,
    device: str,
    modes: Sequence[str],
    workloads: Sequence[Workload],
    rounds: int,
    keep: Callable[[Result], None],
) -> Result:
    """Every workload in every mode, round by round while there is time; what is known so far is kept."""
    bench.calibrate()
    times = bench.times
    by_kind = {workload.kind: workload for workload in workloads}
    order = [(by_kind[kind], mode) for kind, mode in ORDER if kind in by_kind and mode in modes]
    for round_no in range(rounds):
        for workload, mode in order:
            known_s = times.of(workload, mode)
            if len(known_s) > round_no:
                continue
            if time.monotonic() + max(known_s, default=0.0) >= bench.until_s:
                if not known_s:
                    sys.stderr.write(f"gpu_sharing: no time left for {workload.name}, {mode}\n")
                continue
            sys.stderr.write(f"gpu_sharing: {workload.name}, {mode} …\n")
            try:
                makespan_s, lost = bench.run(workload, mode)
            except subprocess.TimeoutExpired:
                continue
            times.add(workload, mode, makespan_s, lost)
            print(f"{workload.name}, {mode}: {makespan_s:.1f} s, {lost} failed", flush=True)
            keep(report(device, modes, times))
    return report(device, modes, times)


def report(device: str, modes: Sequence[str], times: Times) -> Result:
    """The makespans beside each other, and what they are worth."""
    rows, figures = [], []
    for workload in WORKLOADS:
        rows.append([workload.name, *(_cell(times, workload, mode) for mode in modes)])
        gain = times.gain(workload, "shared")
        if workload.at_least is not None and gain is not None:
            target = Target(Bound.AT_LEAST, workload.at_least)
            figures.append(_figure(f"{workload.name}: gain", gain, target, "×"))
        with_mps = times.gain(workload, "shared with MPS", "shared")
        if with_mps is not None:
            target = Target(Bound.MORE_THAN, 1.0)
            figures.append(_figure(f"{workload.name}: gain of MPS", with_mps, target, "×"))
        if workload.kind == "mlp":
            figures += _warm_figures(workload, times)
        lost = times.failed.get(workload.kind)
        if lost is not None:
            target = Target(Bound.AT_MOST, 0)
            name = f"{workload.name}: final failures"
            figures.append(_figure(name, spread([lost]), target, "runs"))
    counts = [len(times.of(workload, mode)) for workload in WORKLOADS for mode in workload.modes]
    return Result(
        name=NAME,
        what=f"Makespans on one {device}, medians of {max(counts)} rounds or fewer: one run at a time"
        " (a few of them, counted for all), and as Stoker packs what it has learned of.",
        details=Table(("runs", *modes), rows),
        figures=figures,
        commands=["python benchmarks/gpu_sharing.py --warm"],
    )


def _cell(times: Times, workload: Workload, mode: str) -> str:
    known_s = times.of(workload, mode)
    if not known_s:
        return "–"
    gain = None if mode == "exclusive" else times.gain(workload, mode)
    shown = "" if gain is None else f" ({gain.median:.2f}×)"
    return f"{spread(known_s).median:.1f} s{shown}"


def _warm_figures(workload: Workload, times: Times) -> list[Figure]:
    """What warm starts add, at first and when a worker and a first run were there before."""
    figures = []
    for mode, warm_mode in WARM_GAINS:
        gain = times.gain(workload, warm_mode, mode)
        if gain is not None:
            target = Target(Bound.AT_LEAST, WARM_GAIN)
            what = f"{workload.name}: gain of warm starts, {mode}"
            figures.append(_figure(what, gain, target, "×"))
    for mode, by_hand_s in BY_HAND_S.items():
        known_s = times.of(workload, mode)
        if known_s:
            target = Target(Bound.AT_MOST, BY_HAND_FACTOR)
            what = f"{workload.name}: {mode}, ÷ by hand ({by_hand_s} s)"
            figures.append(_figure(what, spread(known_s).scaled(1 / by_hand_s), target, "×"))
    return figures


def _figure(name: str, value: Spread, target: Target, unit: str) -> Figure:
    return Figure(name=name, spread=value, target=target, unit=unit, digits=2)


if __name__ == "__main__":
    sys.exit(main())
