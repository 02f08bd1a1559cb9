"""GPU time that an adaptive sweep leaves unused, beside Hydra's Optuna sweeper, which works in batches."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.errors import BenchError
from benchmarks.measure import ratios, spread
from benchmarks.peers import make_environment
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

TRIALS = 64
GPUS = 8
MEDIAN_S, SIGMA = 2.0, 0.8
HYDRA = (
    "hydra-core==1.3.8",
    "hydra-optuna-sweeper==1.3.0",
    "hydra-joblib-launcher==1.2.0",
    "optuna<3",
)
# Each trial notes when it had a GPU. The n-th one to begin takes the n-th duration.
TRAIN = """
import os, time
def train(x, y):
    began = time.time()
    place = len(os.listdir("begun")) if os.path.isdir("begun") else 0
    while True:
        try:
            os.makedirs(f"begun/{place}")
            break
        except FileExistsError:
            place += 1
    with open("durations") as file:
        time.sleep(float(file.read().split()[place]))
    with open("spans", "a") as file:
        file.write(f"{began} {time.time()}\\n")
    return (x - 0.3) ** 2 + (y - 0.6) ** 2
"""
OURS = """
import sys, stoker
from train import train
words = dict(word.lstrip("-").split("=") for word in sys.argv[1:])
stoker.report(0, loss=train(float(words["x"]), float(words["y"])))
"""
THEIRS = """
import os, hydra
from hydra.utils import get_original_cwd
from train import train
@hydra.main(version_base=None, config_path=".", config_name="config")
def main(config):
    os.chdir(get_original_cwd())
    return train(config.x, config.y)
main()
"""
CONFIG = f"""
defaults:
  - _self_
  - override hydra/sweeper: optuna
  - override hydra/sweeper/sampler: tpe
  - override hydra/launcher: joblib
hydra:
  launcher: {{n_jobs: {GPUS}}}
  sweeper:
    n_trials: {TRIALS}
    n_jobs: {GPUS}
    direction: minimize
    params: {{x: "interval(0, 1)", y: "interval(0, 1)"}}
x: 0.0
y: 0.0
"""


class Idle(NamedTuple):
    """GPU time without a trial: while more trials were to begin, and until the last one had ended."""

    waiting_s: float
    all_s: float
    wall_s: float


def run(arena: Arena) -> Result:
    """Let both run the same durations, in turns."""
    seen: dict[str, list[Idle]] = {"stoker": [], "hydra": []}
    own = _environment(arena)
    python = make_environment(os.path.join(arena.folder, "hydra"), HYDRA)
    for number in range(max(1, arena.rounds // 7)):
        seen["stoker"].append(_stoker(arena, number, own))
        seen["hydra"].append(_hydra(arena, number, python))
        arena.progress(number)
    rows = [
        [
            name,
            *(
                f"{spread([getattr(each, part) for each in runs]).median:.1f}"
                for part in Idle._fields
            ),
        ]
        for name, runs in seen.items()
    ]
    waiting, total = (
        ratios(*([getattr(each, part) for each in seen[name]] for name in ("stoker", "hydra")))
        for part in ("waiting_s", "all_s")
    )
    return Result(
        name="tune_idle",
        what=f"{TRIALS} trials of TPE on {GPUS} fake GPUs; durations are log-normal with a median of"
        f" {MEDIAN_S:g} s and a sigma of {SIGMA}. {len(seen['stoker'])} rounds.",
        details=Table(
            (
                "contestant",
                "idle while trials were to begin, GPU·s",
                "idle in all, GPU·s",
                "wall, s",
            ),
            rows,
        ),
        figures=[
            Figure(
                name="GPU time idle while trials were to begin, stoker ÷ hydra",
                spread=waiting,
                target=Target(Bound.AT_MOST, 0.1),
            ),
            Figure(
                name="GPU time idle until the last trial had ended, stoker ÷ hydra",
                spread=total,
                target=Target(Bound.LESS_THAN, 1.0),
            ),
        ],
        notes=[
            "After the last trial has begun nothing can fill the GPUs that become free, with either."
        ],
    )


def _environment(arena: Arena) -> str:
    """Install this tree with Optuna, as users do, and anew each time; return its interpreter."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    python = make_environment(os.path.join(arena.folder, "stoker-tune"), (f"{root}[tune]",))
    anew = ("install", "--quiet", "--disable-pip-version-check", "--force-reinstall", "--no-deps")
    _check([python, "-m", "pip", *anew, root], {}, arena.folder)
    return python


def _stoker(arena: Arena, seed: int, python: str) -> Idle:
    from stoker.testing.state import FakeGpus

    folder = _workplace(arena, "stoker", seed, {"run.py": OURS})
    gpus = os.path.join(folder, "gpus")
    os.makedirs(gpus)
    fake = FakeGpus(gpus).create(GPUS, mem_bytes=16 << 30)
    stoker = os.path.join(os.path.dirname(python), "stoker")
    with arena.home() as env:
        env = {**env, **fake.env(), "PATH": f"{os.path.dirname(python)}:{env['PATH']}"}
        space = ("x=uniform(0,1)", "y=uniform(0,1)", "--method", "tpe", "--minimize", "loss")
        words = ("sweep", "--name", "s", "-n", str(TRIALS), "--share", "never")
        try:
            _check([stoker, *words, "python run.py {args}", *space], env, folder)
            _check([stoker, "wait", "-P", "s"], env, folder)
        finally:
            _check([stoker, "daemon", "stop"], env, folder)
    return _idle(folder)


def _hydra(arena: Arena, seed: int, python: str) -> Idle:
    folder = _workplace(arena, "hydra", seed, {"run.py": THEIRS, "config.yaml": CONFIG})
    _check([python, "run.py", "--multirun"], dict(arena.env), folder)
    return _idle(folder)


def _workplace(arena: Arena, name: str, seed: int, files: Mapping[str, str]) -> str:
    folder = os.path.abspath(os.path.join(arena.folder, "tune", name))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    draw = random.Random(seed)
    durations = [MEDIAN_S * draw.lognormvariate(0, SIGMA) for _trial in range(TRIALS)]
    texts = {"train.py": TRAIN, "durations": " ".join(f"{each:.3f}" for each in durations)}
    for path, text in {**texts, **files}.items():
        with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
            file.write(text)
    return folder


def _check(words: Sequence[str], env: Mapping[str, str], folder: str) -> None:
    done = subprocess.run(
        words, env={**os.environ, **env}, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchError(f"{words[0]} {words[1]} failed: {done.stderr.strip()[-500:]}")


def _idle(folder: str) -> Idle:
    with open(os.path.join(folder, "spans"), encoding="utf-8") as file:
        spans = [tuple(map(float, line.split())) for line in file]
    if len(spans) != TRIALS:
        raise BenchError(f"{len(spans)} of {TRIALS} trials ran in {folder}")
    first, last, over = min(spans)[0], max(spans)[0], max(end for _begin, end in spans)
    used_s = sum(min(end, last) - begin for begin, end in spans)
    all_s = sum(end - begin for begin, end in spans)
    return Idle(GPUS * (last - first) - used_s, GPUS * (over - first) - all_s, over - first)
