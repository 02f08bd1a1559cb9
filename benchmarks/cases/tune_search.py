"""Adaptive search: what it finds beside Optuna in one process, how long asking takes, and what ASHA saves."""

from __future__ import annotations

import heapq
import itertools
import math
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from benchmarks.measure import spread
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena
    from stoker.tuning.study import Study
    from stoker.tuning.trial import Trial

Function = Callable[[Mapping[str, float]], float]

SEEDS = 20
TRIALS = 60
AT_ONCE = 8
SLEEP_S = 0.1
MANY = 1000
# The chance that a search of ours is better, averaged over the functions, has a standard deviation of 0.04 if
# both are equally good: two of these are noise.
WITHIN_NOISE = 0.42
GPUS = 8
RUNS_OF_ASHA = 50
BEST_OF = 64
SPEEDS = ((15, 5), (25, 3))
ITERATIONS = 81


def _sphere(x: Mapping[str, float]) -> float:
    return sum((value - 1.3) ** 2 for value in x.values())


def _rosenbrock(x: Mapping[str, float]) -> float:
    values = list(x.values())
    pairs = itertools.pairwise(values)
    return sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in pairs)


def _rastrigin(x: Mapping[str, float]) -> float:
    return sum(v * v - 10 * math.cos(2 * math.pi * v) + 10 for v in x.values())


def _ackley(x: Mapping[str, float]) -> float:
    values = list(x.values())
    square = math.sqrt(sum(v * v for v in values) / len(values))
    wave = sum(math.cos(2 * math.pi * v) for v in values) / len(values)
    return 20 + math.e - 20 * math.exp(-0.2 * square) - math.exp(wave)


def _styblinski(x: Mapping[str, float]) -> float:
    return sum(v**4 - 16 * v**2 + 5 * v for v in x.values()) / 2


FUNCTIONS: dict[str, Function] = {
    "sphere": _sphere,
    "rosenbrock": _rosenbrock,
    "rastrigin": _rastrigin,
    "ackley": _ackley,
    "styblinski-tang": _styblinski,
}


def run_best(_arena: Arena) -> Result:
    """Search five functions with both, with the same seeds."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # no time is measured
        return _compare(folder)


def _compare(folder: str) -> Result:
    rows, chances = [], []
    for name, function in FUNCTIONS.items():
        ours = [_search(folder, function, seed) for seed in range(SEEDS)]
        theirs = [_optimize(function, seed) for seed in range(SEEDS)]
        chance = _chance(ours, theirs)
        chances.append(chance)
        shown = [f"{s.median:.3g} ({s.q1:.3g} – {s.q3:.3g})" for s in map(spread, (ours, theirs))]
        rows.append([name, *shown, f"{chance:.2f}"])
    return Result(
        name="tune_best",
        what=f"Best value after {TRIALS} trials in 4 dimensions, {SEEDS} seeds, {AT_ONCE} trials at once with"
        f" log-normal durations, beside `study.optimize(n_jobs={AT_ONCE})` in one process.",
        details=Table(("function", "stoker", "optuna", "chance that ours is better"), rows),
        figures=[
            Figure(
                name="chance that a search of ours finds a better value, mean over functions",
                spread=spread([statistics.mean(chances)]),
                target=Target(Bound.AT_LEAST, WITHIN_NOISE),
                unit="",
                digits=2,
            )
        ],
    )


def _chance(ours: list[float], theirs: list[float]) -> float:
    wins = sum((a < b) + 0.5 * (a == b) for a in ours for b in theirs)
    return wins / len(ours) / len(theirs)


def _study(folder: str, seed: int, samples: int, dimensions: int) -> Study:
    from stoker.sweeps.plan import plan_sweep
    from stoker.tuning.study import Study

    root = os.path.abspath(os.path.join(folder, "studies"))
    shutil.rmtree(root, ignore_errors=True)
    parameters = {f"x{each}": {"min": -5.0, "max": 5.0} for each in range(dimensions)}
    definition = {"name": "s", "command": "t {args}", "method": "tpe", "metric": {"name": "loss"}}
    more = {"samples": samples, "seed": seed, "parameters": parameters}
    return Study(plan_sweep({**definition, **more}, base=root))


def _search(folder: str, function: Function, seed: int) -> float:
    """Keep trials running on a clock of its own; as in a sweep, one more is asked for ahead."""
    study, durations = _study(folder, seed, TRIALS, 4), random.Random(seed)
    running: list[tuple[float, int, float]] = []
    waiting: list[Trial] = []
    now, asked, best = 0.0, 0, math.inf
    while asked < TRIALS or running or waiting:
        while asked < TRIALS and len(running) + len(waiting) < AT_ONCE + 1:
            waiting.append(study.ask())
            asked += 1
        while waiting and len(running) < AT_ONCE:
            trial = waiting.pop(0)
            end = now + durations.lognormvariate(0, 0.8)
            heapq.heappush(running, (end, trial.number, function(trial.run.params)))
        now, number, value = heapq.heappop(running)
        study.complete(number, [value])
        best = min(best, value)
    return best


def _optimize(function: Function, seed: int) -> float:
    """Let Optuna's threads run as many trials at once, with the same spread of durations."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    durations = random.Random(seed)

    def objective(trial: optuna.Trial) -> float:
        point = {f"x{each}": trial.suggest_float(f"x{each}", -5, 5) for each in range(4)}
        time.sleep(SLEEP_S * durations.lognormvariate(0, 0.8))
        return function(point)

    study.optimize(objective, n_trials=TRIALS, n_jobs=AT_ONCE)
    return study.best_value


def run_ask(arena: Arena) -> Result:
    """Ask and tell, with a thousand trials in the study, which is on disk."""
    study = _study(arena.folder, 0, 2 * MANY, 8)
    live, times = [study.ask() for _each in range(AT_ONCE)], []
    for number in range(MANY + 50):
        trial = live.pop(0)
        began = (
            time.process_time()
        )  # other processes do not count, and the disk is not waited for long
        study.note_job(trial, number + 1)
        study.complete(trial.number, [_sphere(trial.run.params)])
        live.append(study.ask())
        times.append(1e3 * (time.process_time() - began))
    first, last = spread(times[:50]), spread(times[-50:])
    return Result(
        name="tune_ask",
        what=f"Ask for a trial of 8 parameters and tell the result of another, {AT_ONCE} at once.",
        details=Table(
            ("trials in the study", "ms of CPU (quartiles)"),
            [
                [text, f"{s.median:.1f} ({s.q1:.1f} – {s.q3:.1f})"]
                for text, s in (("0 to 50", first), (f"{MANY} to {MANY + 50}", last))
            ],
        ),
        figures=[
            Figure(
                name=f"ask and tell at {MANY} trials",
                spread=last,
                target=Target(Bound.AT_MOST, 100),
                unit="ms of CPU",
                digits=1,
            )
        ],
    )


def run_asha(_arena: Arena) -> Result:
    """Train simulated runs on simulated GPUs until one has ended that is as good as the best of 64."""
    rows, ratios = [], []
    for slowest, fastest in SPEEDS:
        early, full = (
            [_gpu_time(seed, slowest, fastest, is_early=is_early) for seed in range(RUNS_OF_ASHA)]
            for is_early in (True, False)
        )
        ratios.append(sum(early) / sum(full))
        text = f"{fastest} to {slowest} iterations"
        rows.append([text, f"{sum(early):,}", f"{sum(full):,}", f"{ratios[-1]:.2f}"])
    return Result(
        name="tune_asha",
        what=f"Random search on {GPUS} GPUs over simulated learning curves of {ITERATIONS} iterations,"
        f" until a run has ended whose value is among the best 1/{BEST_OF}. Each curve nears its last"
        " value exponentially, with a time constant of its own that tells nothing of that value."
        f" {RUNS_OF_ASHA} seeds. The first row counts; in the second, runs learn at more different"
        " speeds, so that early values mislead more.",
        details=Table(
            ("time constants", "iterations with asha", "without", "ratio"),
            rows,
        ),
        figures=[
            Figure(
                name="GPU time, asha ÷ random, for the same best value",
                spread=spread(ratios[:1]),
                target=Target(Bound.AT_MOST, 0.35),
                digits=2,
            )
        ],
    )


def _gpu_time(seed: int, slowest: float, fastest: float, *, is_early: bool) -> int:
    """Iterations of all GPUs until a run that went on to its end is good enough."""
    from stoker.core.early_stopping import EarlyStopping, StopRule

    finals = sorted(random.Random(f"all/{each}").betavariate(2, 5) for each in range(4000))
    good = finals[len(finals) // BEST_OF]
    kind = StopRule(kind="asha", min_iter=1, eta=3, max_iter=ITERATIONS)
    rule = EarlyStopping(kind, maximize=False)
    spent = number = 0
    running: dict[int, tuple[float, Iterator[float]]] = {}
    while True:
        while len(running) < GPUS:
            draw = random.Random(f"{seed}/{number}")
            final = draw.betavariate(2, 5)
            running[number] = final, _curve(final, draw.uniform(fastest, slowest), draw)
            number += 1
        for each, (final, curve) in list(running.items()):
            value = next(curve, None)
            if value is None:
                del running[each]
                if final <= good:
                    return spent
                continue
            spent += 1
            rule.report(str(each), value)
            if is_early and rule.judge(str(each)) is not None:
                del running[each]


def _curve(final: float, speed: float, draw: random.Random) -> Iterator[float]:
    for at in range(1, ITERATIONS + 1):
        yield final + (1.2 - final) * math.exp(-at / speed) + draw.gauss(0, 0.01)
