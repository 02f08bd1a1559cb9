"""W&B files that are searched or stopped early, in the forms that public projects use."""

from __future__ import annotations

import re
from typing import NamedTuple

import optuna
import pytest

from stoker.sweeps.files import read_yaml
from stoker.sweeps.plan import Sweep, plan_sweep
from stoker.tuning.search_space import SearchSpace

PYTHON = "/usr/bin/env python"


class Case(NamedTuple):
    """A file; the command of a run, where `…` is a number; its early stopping, as W&B would say it."""

    text: str
    command: str
    stops: tuple[str, int | None, int | None, float] | None = None
    goal: str = "minimize"
    notes: tuple[str, ...] = ()


CASES = {
    "bayes over one range": Case(
        """
program: train.py
method: bayes
metric: {name: val_loss, goal: minimize}
parameters: {lr: {min: 0.0001, max: 0.1}}
""",
        f"{PYTHON} train.py --lr=…",
    ),
    "bayes with a cap, lists and a distribution": Case(
        """
project: seg
program: src/train.py
method: bayes
run_cap: 30
metric:
  goal: maximize
  name: val/mIoU
parameters:
  batch_size: {values: [8, 16, 32]}
  lr: {distribution: log_uniform_values, min: 1e-6, max: 1e-2}
  epochs: {value: 40}
""",
        f"{PYTHON} src/train.py --batch_size=… --epochs=40 --lr=…",
        goal="maximize",
    ),
    "metric without goal": Case(
        "program: t.py\nmethod: bayes\nmetric: {name: loss}\nparameters: {w: {min: 1, max: 9}}\n",
        f"{PYTHON} t.py --w=…",
    ),
    "exponents of e": Case(
        """
program: t.py
method: bayes
metric: {name: loss, goal: minimize}
parameters:
  lr: {distribution: log_uniform, min: -9.2, max: -2.3}
  wd: {distribution: inv_log_uniform_values, min: 0.001, max: 1.0}
""",
        f"{PYTHON} t.py --lr=… --wd=…",
    ),
    "bells and steps": Case(
        """
program: t.py
method: bayes
metric: {name: loss, goal: minimize}
parameters:
  scale: {distribution: normal, mu: 1.0, sigma: 0.1}
  tau: {distribution: log_normal, mu: 0, sigma: 0.5}
  width: {distribution: q_log_uniform_values, q: 8, min: 32, max: 512}
  drop: {distribution: q_uniform, q: 0.05, min: 0.0, max: 0.5}
  mix: {distribution: beta, a: 2, b: 5}
""",
        f"{PYTHON} t.py --scale=… --tau=… --width=… --drop=… --mix=…",
    ),
    "bayes and hyperband": Case(
        """
program: main.py
method: bayes
metric: {name: valid_loss, goal: minimize}
early_terminate:
  type: hyperband
  min_iter: 3
parameters: {lr: {min: 0.0, max: 0.1}}
""",
        f"{PYTHON} main.py --lr=…",
        ("hyperband", 3, None, 3.0),
    ),
    "hyperband from the last iteration": Case(
        """
program: main.py
method: random
run_cap: 20
metric: {name: acc, goal: maximize}
early_terminate: {type: hyperband, s: 2, eta: 3, max_iter: 27}
parameters: {lr: {min: 0.0, max: 0.1}}
""",
        f"{PYTHON} main.py --lr=…",
        ("hyperband", None, 27, 3.0),
        goal="maximize",
    ),
    "hyperband with a fraction of eta, in a grid": Case(
        """
program: main.py
method: grid
metric: {name: loss, goal: minimize}
early_terminate: {eta: 1.5, type: hyperband, min_iter: 10}
parameters: {depth: {values: [2, 4]}}
""",
        f"{PYTHON} main.py --depth=…",
        ("hyperband", 10, None, 1.5),
    ),
    "hyperband with both forms of bands": Case(
        """
program: main.py
method: bayes
metric: {name: loss, goal: minimize}
early_terminate: {type: hyperband, min_iter: 5, max_iter: 50}
parameters: {lr: {min: 0.0, max: 0.1}}
""",
        f"{PYTHON} main.py --lr=…",
        ("hyperband", 5, None, 3.0),
    ),
    "strict hyperband": Case(
        """
program: main.py
method: bayes
metric: {name: loss, goal: minimize}
early_terminate: {type: hyperband, min_iter: 2, strict: true}
parameters: {lr: {min: 0.0, max: 0.1}}
""",
        f"{PYTHON} main.py --lr=…",
        ("hyperband", 2, None, 3.0),
        notes=("early_terminate.strict: has no effect here",),
    ),
    "early_terminate that is switched off": Case(
        """
program: main.py
method: bayes
metric: {name: loss, goal: minimize}
early_terminate: null
parameters: {lr: {min: 0.0, max: 0.1}}
""",
        f"{PYTHON} main.py --lr=…",
    ),
    "a target, and values of failed and of running runs": Case(
        """
program: main.py
method: bayes
metric:
  name: reward
  goal: maximize
  target: 200
  impute: worst
  impute_while_running: latest
parameters: {gamma: {min: 0.9, max: 0.999}}
""",
        f"{PYTHON} main.py --gamma=…",
        goal="maximize",
        notes=("metric.impute_while_running: has no effect here",),
    ),
    "Hydra": Case(
        """
program: src/train.py
method: bayes
metric: {name: val/acc_best, goal: maximize}
command: ["${env}", "${interpreter}", "${program}", trainer=gpu, "${args_no_hyphens}"]
parameters:
  model.optimizer.lr: {min: 0.0001, max: 0.1}
  data.batch_size: {values: [64, 128]}
""",
        f"{PYTHON} src/train.py trainer=gpu data.batch_size=… model.optimizer.lr=…",
        goal="maximize",
    ),
    "nested, and read from wandb.config": Case(
        """
program: train.py
command: ["${env}", "${interpreter}", "${program}"]
method: bayes
metric: {name: loss, goal: minimize}
parameters:
  optimizer: {parameters: {lr: {min: 0.0, max: 0.1}, name: {value: adam}}}
""",
        f"{PYTHON} train.py",
        notes=("the command passes no parameters: the program has to read them from wandb.config",),
    ),
    "reinforcement learning with flags": Case(
        """
method: bayes
program: ppo.py
command: ["${env}", python3, "${program}", --track, "${args_no_boolean_flags}"]
metric: {name: charts/episodic_return, goal: maximize}
early_terminate: {type: hyperband, min_iter: 100, eta: 2}
parameters:
  env-id: {value: CartPole-v1}
  norm-adv: {value: true}
  num-steps: {values: [128, 256]}
  learning-rate: {distribution: uniform, min: 0.0001, max: 0.01}
""",
        "/usr/bin/env python3 ppo.py --track --env-id=CartPole-v1 --norm-adv --num-steps=…"
        " --learning-rate=…",
        ("hyperband", 100, None, 2.0),
        goal="maximize",
    ),
}


def _plan(text: str) -> Sweep:
    tree = read_yaml(text, "sweep.yaml")
    if "run_cap" not in tree and tree["method"] != "grid":
        tree["samples"] = 4  # as -n 4; W&B has --count
    return plan_sweep(tree, base="/base")


def _command(sweep: Sweep) -> str:
    if not sweep.is_adaptive:
        return next(iter(sweep)).command
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    point = SearchSpace(sweep.space).choose(study.ask())
    return sweep.trial(0, point, "key").command


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_public_form_is_accepted_and_run_as_wandb_would(case: Case) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sweep = _plan(case.text)

    pattern = r"-?[\d.e-]+".join(map(re.escape, case.command.split("…")))
    command = _command(sweep)
    assert re.fullmatch(pattern, command), command
    rule = sweep.stop_rule
    found = rule and (rule.kind, rule.min_iter, rule.max_iter, rule.eta)
    assert found == case.stops
    assert sweep.metric is not None
    assert (sweep.metric.goal, tuple(sweep.notes)) == (case.goal, case.notes)
