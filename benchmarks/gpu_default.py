"""What a user gets with no flag: sweeps with real libraries on a real GPU, against runs by hand.

    python benchmarks/gpu_default.py [--rounds 3] [--budget 560] [--only lm,sizes]

In each round every workload is done one after another (some of the runs, counted for all), by hand all at
once, as a first `stoker sweep` in a fresh home, and as a second one with other values. All times are from the
command to the last end. `--dry` runs it over fake GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks.measure import spread
from stoker.testing.state import GIB, FakeGpus

HERE = os.path.dirname(os.path.abspath(__file__))
MODES = ("one after another", "by hand", "first", "second")


@dataclass(frozen=True)
class Workload:
    """A sweep: its script, what its parameter is in the first and second sweep, how many stand for all."""

    name: str
    script: str
    flag: str
    first: Sequence[float]
    second: Sequence[float]
    alone: Sequence[int]  # positions of the runs that are timed one after another
    targets: Sequence[tuple[str, str, bool, float]] = ()  # numerator, denominator, at least, figure
    by_hand: bool = False


def _rates(count: int, base: float) -> list[float]:
    return [round(base * (1 + 0.1 * number), 6) for number in range(count)]


SIZES = (8, 16, 32, 64, 128, 256)
WORKLOADS = (
    Workload(
        "lm",
        "gpu_lm.py",
        "lr",
        _rates(12, 0.001),
        _rates(12, 0.003),
        (0, 1),
        (("first", "by hand", False, 1.1), ("second", "by hand", False, 0.55)),
        by_hand=True,
    ),
    Workload(
        "sizes",
        "gpu_lm.py --steps 40",
        "bs",
        SIZES,
        (8, 24, 48, 96, 192, 256),
        tuple(range(6)),
        (("one after another", "first", True, 2.2), ("one after another", "second", True, 4.0)),
    ),
    Workload(
        "mlp",
        "gpu_work.py mlp {steps}",
        "lr",
        _rates(16, 0.01),
        _rates(16, 0.03),
        (0, 1, 2),
        (("one after another", "first", True, 11.0), ("one after another", "second", True, 28.0)),
    ),
    Workload(
        "cnn",
        "gpu_work.py cnn {steps}",
        "lr",
        _rates(8, 0.01),
        _rates(8, 0.03),
        (0, 1),
        (("one after another", "first", True, 4.0), ("one after another", "second", True, 5.0)),
    ),
    Workload(
        "jax",
        "gpu_jax.py",
        "lr",
        _rates(8, 0.001),
        _rates(8, 0.003),
        (0, 1),
        (("one after another", "first", True, 3.0),),
    ),
    Workload(
        "saturating",
        "gpu_work.py saturating {steps}",
        "lr",
        _rates(3, 0.01),
        _rates(3, 0.03),
        (0, 1, 2),
        (("one after another", "first", True, 0.97),),
    ),
)
SECONDS = {"mlp": 1.5, "cnn": 2.5, "saturating": 5.0}


@dataclass
class Bench:
    """The environment of all runs, and what was measured."""

    env: dict[str, str]
    folder: str
    until_s: float
    dry: bool
    steps: dict[str, int] = field(default_factory=dict)
    times: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failed: int = 0
    retried: int = 0
    began_s: float = 0.0  # when the sweep that runs was given

    def command(self, workload: Workload) -> str:
        """The command of a sweep, with its parameter in braces."""
        value = f"--{workload.flag} {{{workload.flag}}}"
        if self.dry:
            return f"{sys.executable} -m stoker.testing.train --steps 2 --seconds 0.2 --mem 1G"
        script = workload.script.format(steps=self.steps.get(workload.name, 0))
        return f"{sys.executable} {HERE}/{script} {value}"

    def runs(self, workload: Workload, values: Sequence[float]) -> list[list[str]]:
        """The words of each run."""
        template = self.command(workload)
        key = f"{{{workload.flag}}}"
        return [shlex.split(template.replace(key, f"{value:g}")) for value in values]

    def calibrate(self, names: Sequence[str]) -> None:
        """Find out how many steps the trainings of `gpu_work.py` take on this GPU."""
        if self.dry or not set(names) & set(SECONDS):
            return
        words = [sys.executable, f"{HERE}/gpu_work.py", "calibrate", "1"]
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, check=True)
        per_s = json.loads(done.stdout)
        self.steps = {name: int(per_s[name] * seconds) for name, seconds in SECONDS.items()}

    def one_after_another(self, workload: Workload) -> float:
        """Seconds of all runs, from those that stand for them."""
        runs = self.runs(workload, workload.first)
        began = time.monotonic()
        for position in workload.alone:
            subprocess.run(runs[position], env=self.env, check=True, capture_output=True)
        return (time.monotonic() - began) * len(runs) / len(workload.alone)

    def by_hand(self, workload: Workload) -> float:
        """Seconds of all runs, started at once."""
        began = time.monotonic()
        started = [
            subprocess.Popen(
                words, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            for words in self.runs(workload, workload.first)
        ]
        codes = [process.wait() for process in started]
        self.failed += sum(code != 0 for code in codes)
        return time.monotonic() - began

    def sweeps(self, workload: Workload) -> tuple[float, float]:
        """Seconds of a first sweep and of a second one in the same home, with no flag given."""
        home = tempfile.mkdtemp(dir=self.folder)
        # A cache of its own: the first sweep finds nothing that an earlier round has compiled.
        env = {**self.env, "STOKER_HOME": f"{home}/stoker", "XDG_CACHE_HOME": f"{home}/cache"}
        stoker = [sys.executable, "-m", "stoker"]
        subprocess.run([*stoker, "daemon", "start"], env=env, cwd=home, check=True)
        took: list[float] = []
        try:
            for values in (workload.first, workload.second):
                given = f"{workload.flag}={','.join(f'{value:g}' for value in values)}"
                words = [*stoker, "sweep", "--name", f"s{len(took)}", self.command(workload)]
                began, self.began_s = time.monotonic(), time.time()
                subprocess.run(
                    words if self.dry else [*words, given], env=env, cwd=home, check=True
                )
                subprocess.run([*stoker, "wait"], env=env, cwd=home, check=False)
                took.append(time.monotonic() - began)
                self._tell_runs(stoker, env, home)
            self._count(stoker, env, home)
        finally:
            subprocess.run([*stoker, "daemon", "stop", "--kill"], env=env, cwd=home, check=False)
        return took[0], took[1]

    def _count(self, stoker: Sequence[str], env: dict[str, str], home: str) -> None:
        jobs = json.loads(_shown([*stoker, "ls", "-a", "--json"], env, home))
        self.failed += sum(job["state"] != "done" for job in jobs)
        self.retried += sum(job.get("attempt", 1) > 1 for job in jobs)

    def _tell_runs(self, stoker: Sequence[str], env: dict[str, str], home: str) -> None:
        """Print when each run started and ended, how it started, and the last line that it printed."""
        for job in json.loads(_shown([*stoker, "ls", "-a", "--json"], env, home)):
            if job["submitted_at"] < self.began_s:
                continue
            began_s, ended_s = (
                (job[key] or 0) - self.began_s for key in ("started_at", "ended_at")
            )
            why = _shown([*stoker, "why", str(job["id"])], env, home).splitlines()
            log = _shown([*stoker, "log", str(job["id"])], env, home).splitlines()
            print(
                f"  {job['id']}: {began_s:.1f}–{ended_s:.1f} s, attempt {job['attempt']}, "
                f"{'; '.join(why[1:])[:300]} | {' | '.join(log[-1:])[:120]}",
                file=sys.stderr,
            )
        print(_shown([*stoker, "status"], env, home), file=sys.stderr)

    def note(self, workload: Workload, mode: str, took_s: float) -> None:
        """Keep and print a time."""
        self.times.setdefault(workload.name, {}).setdefault(mode, []).append(took_s)
        print(f"{workload.name}, {mode}: {took_s:.1f} s", flush=True)


def _shown(words: Sequence[str], env: dict[str, str], home: str) -> str:
    done = subprocess.run(words, env=env, cwd=home, check=False, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def main() -> int:
    """Measure; 0 if every figure holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="over fake GPUs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=560.0, help="seconds at most")
    parser.add_argument("--only", default=",".join(each.name for each in WORKLOADS))
    args = parser.parse_args()
    chosen = [each for each in WORKLOADS if each.name in args.only.split(",")]
    with tempfile.TemporaryDirectory(prefix="stoker-gpu-", ignore_cleanup_errors=True) as folder:
        env = {**os.environ, "STOKER_LEASE_DIR": f"{folder}/leases"}
        if args.dry:
            env.update(FakeGpus(f"{folder}/gpus").create(1, 80 * GIB).env())
        bench = Bench(env, folder, time.monotonic() + args.budget, args.dry)
        bench.calibrate([each.name for each in chosen])
        measure(bench, chosen, args.rounds)
    return report(bench, chosen)


def measure(bench: Bench, chosen: Sequence[Workload], rounds: int) -> None:
    """Go round and round, as long as there is time."""
    spent: dict[str, float] = {}
    for _round in range(rounds):
        for workload in chosen:
            if time.monotonic() + spent.get(workload.name, 0.0) >= bench.until_s:
                continue
            began = time.monotonic()
            bench.note(workload, "one after another", bench.one_after_another(workload))
            if workload.by_hand:
                bench.note(workload, "by hand", bench.by_hand(workload))
            first_s, second_s = bench.sweeps(workload)
            bench.note(workload, "first", first_s)
            bench.note(workload, "second", second_s)
            spent[workload.name] = time.monotonic() - began


def report(bench: Bench, chosen: Sequence[Workload]) -> int:
    """Print the medians and the figures as tables in Markdown."""
    print("\n| work | " + " | ".join(f"{mode}, s" for mode in MODES) + " |\n|---|---|---|---|---|")
    shown: Callable[[Sequence[float]], str] = lambda times: (  # noqa: E731
        f"{spread(times).median:.1f} ({min(times):.1f}–{max(times):.1f})" if times else "–"
    )
    for workload in chosen:
        times = bench.times.get(workload.name, {})
        print(f"| {workload.name} | " + " | ".join(shown(times.get(m, [])) for m in MODES) + " |")
    print("\n| figure | target | seen | |\n|---|---|---|---|")
    holds = True
    for workload in chosen:
        for above, below, at_least, figure in workload.targets:
            times = bench.times.get(workload.name, {})
            pairs = zip(times.get(above, []), times.get(below, []), strict=False)
            ratios = [a / b for a, b in pairs]
            if ratios:
                seen = spread(ratios).median
                ok = seen >= figure if at_least else seen <= figure
                holds = holds and ok
                sign = "≥" if at_least else "≤"
                mark = "holds" if ok else "**missed**"
                print(
                    f"| {workload.name}: {above} ÷ {below} | {sign} {figure} | {seen:.2f} | {mark} |"
                )
    print(f"\n{bench.failed} runs failed for good; {bench.retried} ran more than once.")
    return 0 if (holds or bench.dry) and not bench.failed else 1


if __name__ == "__main__":
    sys.exit(main())
