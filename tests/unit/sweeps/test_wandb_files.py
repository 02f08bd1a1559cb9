"""Sweep files in the forms that public W&B projects use: accepted, and expanded as W&B's agent would."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest
from ruamel.yaml import YAML

from stoker.core.wandb_params import WANDB_GROUPS, to_wandb_params
from stoker.errors import UsageError
from stoker.sweeps.beta import beta_quantile
from stoker.sweeps.distributions import make_distribution
from stoker.sweeps.files import read_yaml
from stoker.sweeps.plan import Sweep, plan_sweep
from stoker.sweeps.queueing import describe_runs

PYTHON = "/usr/bin/env python"


class Case(NamedTuple):
    """A file, how many runs it has, and the first run's command; `…` is anything within a word."""

    text: str
    runs: int
    command: str
    samples: int | None = None  # as -n; W&B has --count


CASES = {
    "one list of values": Case(
        "program: train.py\nmethod: grid\nparameters:\n  lr:\n    values: [0.1, 0.01]\n",
        2,
        f"{PYTHON} train.py --lr=0.1",
    ),
    "metric and three parameters": Case(
        """
program: main.py
method: grid
metric:
  name: val/loss
  goal: minimize
parameters:
  epochs: {value: 20}
  batch_size: {values: [32, 64, 128]}
  opt: {values: [adam, sgd]}
""",
        6,
        f"{PYTHON} main.py --epochs=20 --batch_size=32 --opt=adam",
    ),
    "project, entity, description and name": Case(
        """
name: "ResNet / CIFAR (v2)"
description: second try
project: cifar
entity: lab
program: train.py
method: grid
parameters: {depth: {values: [18, 34]}}
""",
        2,
        f"{PYTHON} train.py --depth=18",
    ),
    "random with a run cap": Case(
        """
program: train.py
method: random
run_cap: 7
parameters:
  lr: {distribution: log_uniform_values, min: 1e-5, max: 1e-1}
""",
        7,
        f"{PYTHON} train.py --lr=…",
    ),
    "random without a run cap": Case(
        """
method: random
program: train.py
parameters:
  dropout: {min: 0.0, max: 0.5}
  layers: {min: 1, max: 6}
""",
        5,
        f"{PYTHON} train.py --dropout=0.… --layers=…",
        samples=5,
    ),
    "exponents of e": Case(
        """
program: train.py
method: random
run_cap: 3
parameters:
  lr: {distribution: log_uniform, min: -9.21, max: -2.3}
  wd: {distribution: inv_log_uniform_values, min: 1.0e-6, max: 1.0e-2}
""",
        3,
        f"{PYTHON} train.py --lr=… --wd=…",
    ),
    "bells": Case(
        """
program: train.py
method: random
run_cap: 3
parameters:
  a: {distribution: normal, mu: 0, sigma: 0.1}
  b: {distribution: log_normal, mu: -3, sigma: 1}
  c: {distribution: q_normal, mu: 100, sigma: 10, q: 5}
  d: {distribution: normal}
""",
        3,
        f"{PYTHON} train.py --a=… --b=… --c=… --d=…",
    ),
    "beta": Case(
        """
program: train.py
method: random
run_cap: 4
parameters:
  mix: {distribution: beta, a: 2, b: 5}
  keep: {distribution: q_beta, a: 2, b: 2, q: 0.25}
  flat: {distribution: beta}
""",
        4,
        f"{PYTHON} train.py --mix=0.… --keep=… --flat=0.…",
    ),
    "steps": Case(
        """
program: train.py
method: random
run_cap: 4
parameters:
  width: {distribution: q_log_uniform_values, q: 8, min: 32, max: 256}
  warmup: {distribution: q_uniform, q: 100, min: 0, max: 1000}
  act: {distribution: categorical, values: [relu, gelu]}
  seed: {distribution: constant, value: 1}
""",
        4,
        f"{PYTHON} train.py --act=…elu --seed=1 --width=… --warmup=…",
    ),
    "probabilities": Case(
        """
program: train.py
method: random
run_cap: 4
parameters:
  aug:
    distribution: categorical_w_probabilities
    values: [none, crop]
    probabilities: [0.25, 0.75]
  drop: {min: 0.0, max: 1.0}
""",
        4,
        f"{PYTHON} train.py --aug=… --drop=…",
    ),
    "a grid over whole numbers": Case(
        "program: t.py\nmethod: grid\nparameters: {seed: {min: 1, max: 5}}",
        5,
        f"{PYTHON} t.py --seed=1",
    ),
    "a grid over int_uniform": Case(
        """
program: t.py
method: grid
parameters:
  fold: {distribution: int_uniform, min: 0, max: 4}
  model: {values: [a, b]}
""",
        10,
        f"{PYTHON} t.py --fold=0 --model=a",
    ),
    "a grid over steps": Case(
        """
program: t.py
method: grid
parameters:
  drop: {distribution: q_uniform, min: 0.0, max: 0.5, q: 0.1}
""",
        5,
        f"{PYTHON} t.py --drop=0.0",
    ),
    "a capped grid": Case(
        """
program: t.py
method: grid
run_cap: 3
parameters: {fold: {min: 0, max: 9}}
""",
        3,
        f"{PYTHON} t.py --fold=0",
    ),
    "an interpreter of its own": Case(
        """
program: train.py
command: [python3, "${program}", "${args}"]
method: grid
parameters: {lr: {values: [1, 2]}}
""",
        2,
        "python3 train.py --lr=1",
    ),
    "the usual command with more words": Case(
        """
program: train.py
command:
  - ${env}
  - ${interpreter}
  - ${program}
  - "--data=/my data"
  - --fp16
  - ${args}
method: grid
parameters: {lr: {values: [1, 2]}}
""",
        2,
        f"{PYTHON} train.py '--data=/my data' --fp16 --lr=1",
    ),
    "a command without program": Case(
        """
command: [python, -m, pkg.train, "${args}"]
method: grid
parameters: {lr: {values: [1, 2]}}
""",
        2,
        "python -m pkg.train --lr=1",
    ),
    "torchrun": Case(
        """
program: train.py
command: [torchrun, --standalone, --nproc_per_node, 1, "${program}", "${args}"]
method: grid
parameters: {lr: {values: [1, 2]}}
""",
        2,
        "torchrun --standalone --nproc_per_node 1 train.py --lr=1",
    ),
    "numbers and booleans as words": Case(
        """
program: train.py
command: ["${interpreter}", "${program}", --seed, 42, --eps, 0.5, --shuffle, true, "${args}"]
method: grid
parameters: {lr: {values: [1, 2]}}
""",
        2,
        "python train.py --seed 42 --eps 0.5 --shuffle True --lr=1",
    ),
    "Hydra without hyphens": Case(
        """
program: src/train.py
command: ["${env}", python, "${program}", "hparams_search=mnist", "${args_no_hyphens}"]
method: grid
parameters:
  model.optimizer.lr: {values: [0.1, 0.2]}
  datamodule: {value: mnist}
""",
        2,
        f"{PYTHON} src/train.py hparams_search=mnist model.optimizer.lr=0.1 datamodule=mnist",
    ),
    "Hydra appends": Case(
        """
program: train.py
command: [python, "${program}", "${args_append_hydra}"]
method: grid
parameters: {trainer.max_epochs: {values: [1, 2]}, model.act: {value: null}}
""",
        2,
        "python train.py +trainer.max_epochs=1 +model.act=None",
    ),
    "Hydra overrides": Case(
        """
program: train.py
command: [python, "${program}", "${args_override_hydra}"]
method: grid
parameters: {trainer.max_epochs: {values: [1, 2]}, model.bias: {value: false}}
""",
        2,
        "python train.py ++trainer.max_epochs=1 ++model.bias=False",
    ),
    "Hydra's plus in the name": Case(
        """
program: train.py
command: [python, "${program}", "${args_no_hyphens}"]
method: grid
parameters: {+experiment: {values: [a, b]}, ++seed: {value: 1}, ~logger: {value: x}}
""",
        2,
        "python train.py +experiment=a ++seed=1 '~logger=x'",
    ),
    "Hydra's own interpolation": Case(
        """
program: train.py
command:
  - python
  - ${program}
  - hydra.run.dir=out/${now:%Y-%m-%d}
  - name=${model.name}
  - ${args_no_hyphens}
method: grid
parameters: {lr: {values: [1, 2]}}
""",
        2,
        "python train.py 'hydra.run.dir=out/${now:%Y-%m-%d}' 'name=${model.name}' lr=1",
    ),
    "a shell that strips hyphens": Case(
        """
program: train.py
command:
  - bash
  - -c
  - 'for arg in "$@"; do set -- "${arg#--}"; done; python t.py $1'
  - bash
  - ${args}
method: grid
parameters: {lr: {values: [1, 2]}}
""",
        2,
        """bash -c 'for arg in "$@"; do set -- "${arg#--}"; done; python t.py $1' bash --lr=1""",
    ),
    "JSON in a word": Case(
        """
program: train.py
command: [python, "${program}", '--cfg={"a": {"b": 1}}', "${args}"]
method: grid
parameters: {lr: {values: [1, 2]}}
""",
        2,
        """python train.py '--cfg={"a": {"b": 1}}' --lr=1""",
    ),
    "without equals signs": Case(
        """
program: train.py
command: [python, "${program}", "${args_no_equals}"]
method: grid
parameters: {lr: {values: [1, 2]}, text: {value: a b}}
""",
        2,
        "python train.py --lr 1 --text 'a b'",
    ),
    "flags": Case(
        """
program: train.py
command: [python, "${program}", "${args_no_boolean_flags}"]
method: grid
parameters: {amp: {values: [true, false]}, lr: {value: 1}}
""",
        2,
        "python train.py --amp --lr=1",
    ),
    "a file of JSON": Case(
        """
program: train.py
command: [python, "${program}", --config, "${args_json_file}"]
method: grid
parameters: {lr: {values: [1, 2]}}
""",
        2,
        "python train.py --config /base/results/sweep/lr=1-…/params.json",
    ),
    "JSON": Case(
        """
program: train.py
command: [python, "${program}", "${args_json}"]
method: grid
parameters: {lr: {values: [1, 2]}}
""",
        2,
        """python train.py '{"lr":1}'""",
    ),
    "a variable": Case(
        """
program: train.py
command: [python, "${program}", "--data=${envvar:DATA}/train", "${args}"]
method: grid
parameters: {lr: {values: [1, 2]}}
""",
        2,
        'python train.py --data="${DATA}"/train --lr=1',
    ),
    "no arguments": Case(
        """
program: train.py
command: ["${env}", "${interpreter}", "${program}"]
method: grid
parameters: {lr: {values: [1, 2]}}
""",
        2,
        f"{PYTHON} train.py",
    ),
    "no arguments, and a configuration": Case(
        """
command: [python, train.py, --config, base.yaml]
method: random
run_cap: 4
parameters: {lr: {min: 0.0, max: 1.0}}
""",
        4,
        "python train.py --config base.yaml",
    ),
    "nested": Case(
        """
program: train.py
method: grid
parameters:
  optimizer:
    parameters:
      name: {values: [adam, sgd]}
      lr: {value: 0.1}
  model:
    parameters:
      head: {parameters: {dim: {values: [8, 16]}}}
""",
        4,
        f"{PYTHON} train.py --optimizer.name=adam --optimizer.lr=0.1 --model.head.dim=8",
    ),
    "lists as values": Case(
        """
program: train.py
method: grid
parameters:
  hidden: {values: [[64, 64], [128]]}
  betas: {value: [0.9, 0.999]}
""",
        2,
        f"{PYTHON} train.py '--hidden=[64, 64]' '--betas=[0.9, 0.999]'",
    ),
    "null, booleans and texts": Case(
        """
program: train.py
method: grid
parameters:
  sched: {values: [null, cosine]}
  amp: {values: [true, false]}
  note: {value: "it's"}
""",
        4,
        f"""{PYTHON} train.py --sched=None --amp=True '--note=it'"'"'s'""",
    ),
    "launch keys": Case(
        """
apiVersion: v1
kind: Sweep
controller: {type: local}
scheduler: {job: x}
metrics: [{name: loss}]
program: train.py
method: grid
parameters: {lr: {values: [1, 2]}}
""",
        2,
        f"{PYTHON} train.py --lr=1",
    ),
    "a target": Case(
        """
program: train.py
method: grid
metric: {name: acc, goal: maximize, target: 0.99}
parameters: {lr: {values: [1, 2]}}
""",
        2,
        f"{PYTHON} train.py --lr=1",
    ),
    "anchors": Case(
        """
program: train.py
method: grid
parameters:
  enc: &sizes {values: [8, 16]}
  dec: *sizes
""",
        4,
        f"{PYTHON} train.py --enc=8 --dec=8",
    ),
    "long lists with comments": Case(
        """
# 5 seeds
program: train.py
method: grid
parameters:
  seed:
    values:
      - 0
      - 1   # the first
      - 2
      - 3
      - 4
  env-id: {values: [Hopper-v4, Ant-v4]}
""",
        10,
        f"{PYTHON} train.py --seed=0 --env-id=Hopper-v4",
    ),
    "a module with dashes and paths": Case(
        """
program: examples/run_clm.py
command:
  - accelerate
  - launch
  - --config_file=conf/a.yaml
  - ${program}
  - --output_dir
  - /out/clm
  - ${args}
method: grid
parameters:
  model_name_or_path: {values: [gpt2, EleutherAI/pythia-70m]}
  per_device_train_batch_size: {value: 8}
""",
        2,
        "accelerate launch --config_file=conf/a.yaml examples/run_clm.py --output_dir /out/clm"
        " --model_name_or_path=gpt2 --per_device_train_batch_size=8",
    ),
    "quotes in a word": Case(
        """
program: train.py
command: [python, "${program}", "--tag='x y'", --re=a|b, "${args}"]
method: grid
parameters: {lr: {values: [1, 2]}}
""",
        2,
        """python train.py '--tag='"'"'x y'"'"'' '--re=a|b' --lr=1""",
    ),
    "twice the program": Case(
        """
program: train.py
command: [sh, run.sh, "${program}", "${program}", "${args}"]
method: grid
parameters: {lr: {values: [1, 2]}}
""",
        2,
        "sh run.sh train.py train.py --lr=1",
    ),
}


def plan(text: str, samples: int | None = None) -> Sweep:
    tree = read_yaml(text, "sweep.yaml")
    if samples is not None:
        tree["samples"] = samples
    return plan_sweep(tree, base="/base")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_public_form_is_accepted_and_expanded_as_wandb_would(case: Case) -> None:
    sweep = plan(case.text, case.samples)
    commands = [run.command for run in sweep]

    assert len(commands) == case.runs
    pattern = r"\S*".join(map(re.escape, case.command.split("…")))
    assert re.fullmatch(pattern, commands[0]), commands[0]
    assert WANDB_GROUPS in sweep.variables


def read_as_wandb(text: str) -> Any:
    """Read YAML 1.1, which wandb's parser knows."""
    return YAML(typ="safe", pure=True).load(f"%YAML 1.1\n---\n{text}")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("a grid over int_uniform", {"fold": [0, 1, 2, 3, 4], "model": ["a", "b"]}),
        ("a grid over steps", {"drop": [0.0, 0.1, 0.2, 0.3, 0.4]}),
        ("a capped grid", {"fold": [0, 1, 2]}),
    ],
)
def test_a_grid_visits_the_values_of_stepped_ranges(name: str, values: dict[str, Any]) -> None:
    found: dict[str, list[Any]] = {}
    for run in plan(CASES[name].text):
        for parameter, value in run.params.items():
            if value not in found.setdefault(parameter, []):
                found[parameter].append(value)

    assert found == values


def test_wandb_reads_the_parameters_as_they_are_and_nested_as_in_the_file() -> None:
    sweep = plan("""
program: train.py
method: grid
parameters:
  lr: {value: 1e-5}
  big: {value: 1e+30}
  model.name: {value: "no"}
  text: {value: "tab\\t ü 日 😀 \\" \\\\ # : \\x7f"}
  hidden: {value: [64, null, true, 1.5]}
  optimizer:
    parameters:
      name: {value: adam}
      beta.1: {value: 0.9}
      sched: {parameters: {gamma: {value: 1e-3}}}
""")
    (run,) = sweep

    written = to_wandb_params(run.params_json, sweep.variables[WANDB_GROUPS].split(","))

    assert written.isascii()
    assert read_as_wandb(written) == {
        "lr": {"value": 1e-5},
        "big": {"value": 1e30},
        "model.name": {"value": "no"},
        "text": {"value": 'tab\t ü 日 😀 " \\ # : \x7f'},
        "hidden": {"value": [64, None, True, 1.5]},
        "optimizer": {
            "value": {"name": "adam", "beta.1": 0.9, "sched": {"gamma": 1e-3}},
        },
    }


def test_a_parameter_with_the_name_of_a_group_does_not_hide_those_in_the_group() -> None:
    written = to_wandb_params('{"opt": 1, "opt.lr": 0.5}', ["opt"])

    assert read_as_wandb(written) == {"opt": {"value": 1}, "opt.lr": {"value": 0.5}}


def test_only_wandbs_notation_gets_wandbs_file() -> None:
    assert plan("{command: 'python t.py {args}', parameters: {lr: 1}}").variables == {}
    assert plan("{program: t.py, parameters: {lr: 1}}").variables == {WANDB_GROUPS: ""}


def test_a_submission_by_the_page_marks_its_runs_too() -> None:
    sweep = plan(CASES["nested"].text)

    common = describe_runs(sweep, b"/base", {"timeout": None}, {"by_page": True})

    assert common.by_page
    assert common.env == {WANDB_GROUPS: "optimizer,model,model.head"}


def test_notes_tell_what_has_no_effect_and_what_the_command_does_not_pass() -> None:
    assert plan(CASES["launch keys"].text).notes == [
        f"{key}: has no effect here"
        for key in ("apiVersion", "kind", "controller", "scheduler", "metrics")
    ]
    (note,) = plan(CASES["no arguments"].text).notes
    assert "has to read them from wandb.config" in note
    text = "{program: t.py, command: [sh, -c, 'python t.py ${args}'], parameters: {lr: 1}}"
    first, second = plan(text).notes
    assert first.startswith("${args} in 'python t.py ${args}' stays as it is")
    assert "wandb.config" in second


def test_a_command_that_passes_some_parameters_but_not_all_is_refused() -> None:
    with pytest.raises(UsageError, match=r"sweep.yaml:1: the command never uses bs"):
        plan("{command: [python, t.py, '{lr}'], parameters: {lr: 1, bs: 2}}")
    with pytest.raises(UsageError, match="the command never uses lr"):
        plan("{command: python t.py, parameters: {lr: 1}}")


def test_a_wandb_name_becomes_the_name_of_a_folder() -> None:
    assert plan("{name: 'a / b (v2)', program: t.py, method: grid}").name == "a-b-v2"
    with pytest.raises(UsageError, match="the name '///' contains"):
        plan("{name: '///', program: t.py, method: grid}")


@pytest.mark.parametrize(
    ("u", "a", "b", "x"),
    [
        (0.25, 1, 1, 0.25),
        (0.5, 3, 3, 0.5),
        (0.36, 2, 1, 0.6),  # F(x) = x²
        (0.75, 1, 2, 0.5),  # F(x) = 1 - (1 - x)²
        (1 / 3, 0.5, 0.5, 0.25),  # the arcsine law
        (0.5, 1e6, 1e6, 0.5),
    ],
)
def test_quantiles_of_the_beta_distribution(u: float, a: float, b: float, x: float) -> None:
    assert beta_quantile(u, a, b) == pytest.approx(x, rel=1e-9)


def test_beta_is_checked_and_rounded() -> None:
    assert make_distribution("q_beta", {"a": 2, "b": 2, "q": 0.25}).draw(0.5) == 0.5
    for wrong in ("a: 0", "b: -1", "a: 1e9"):
        with pytest.raises(UsageError, match="both must be greater than 0"):
            plan(f"{{program: t.py, parameters: {{x: {{distribution: beta, {wrong}}}}}}}")
    with pytest.raises(UsageError, match="unknown key 'a'"):
        plan("{program: t.py, parameters: {x: {distribution: normal, a: 1}}}")
