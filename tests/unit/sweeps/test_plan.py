"""Whole sweeps, from their definition to their runs."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import pytest

from stoker.errors import UsageError
from stoker.sweeps.files import read_toml, read_yaml
from stoker.sweeps.plan import Sweep, plan_sweep

ANCESTOR = """
command: python train.py {args}
fixed: {num_run: 5, num_epoch: 200}
parameters:
  - method: [GAN, ALI]
    num_packing: [1]
    num_zmode: [1]
  - method: [WGAN]
    num_packing: [3]
    num_zmode: [1, 2]
"""

EXAMPLE = """
name: pacgan
command: python train.py {args} --out {dir}
resources: {gpus: 1, gpu_mem: 10G, timeout: 6h, retries: 1}
fixed: {num_epoch: 200}
method: grid
samples: 2
seed: 0
repeats: 3
parameters:
  - method: [GAN, ALI]
    lr: {min: 1e-5, max: 1e-1, distribution: log_uniform_values}
    drop: uniform(0, 0.5)
    opt.name: [sgd, adam]
    opt.momentum: {values: [0.9], when: opt.name == 'sgd'}
  - method: WGAN
    zip: {packing: [2, 3], zmode: [1, 2]}
    hidden: {value: [64, 64]}
exclude:
  - {method: ALI, opt.name: sgd}
  - method == 'GAN' and lr > 0.05
metric: {name: val_acc, goal: maximize}
dir: results/{name}/{id}
"""


def plan(text: str, *words: str) -> Sweep:
    return plan_sweep(read_yaml(text, "sweep.yaml"), words, base="/base")


def params(sweep: Sweep) -> list[dict[str, Any]]:
    return [run.params for run in sweep]


def test_the_example_of_gpu_task_scheduler_gives_its_four_instances() -> None:
    assert params(plan(ANCESTOR)) == [
        {"num_run": 5, "num_epoch": 200, "method": "GAN", "num_packing": 1, "num_zmode": 1},
        {"num_run": 5, "num_epoch": 200, "method": "ALI", "num_packing": 1, "num_zmode": 1},
        {"num_run": 5, "num_epoch": 200, "method": "WGAN", "num_packing": 3, "num_zmode": 1},
        {"num_run": 5, "num_epoch": 200, "method": "WGAN", "num_packing": 3, "num_zmode": 2},
    ]


def test_every_part_of_the_grammar_works_together() -> None:
    sweep = plan(EXAMPLE)
    runs = list(sweep)

    assert sweep.name == "pacgan"
    assert sweep.count == len(runs)
    assert len({run.identity for run in runs}) == len({run.dir for run in runs}) == len(runs)
    assert sweep.resources.gpus == 1
    assert sweep.resources.gpu_mem_bytes == 10 * 1024**3
    assert sweep.resources.timeout == "6h"
    assert sweep.metric is not None
    assert sweep.metric.goal == "maximize"
    for run in runs:
        found = run.params
        assert found["num_epoch"] == 200
        assert found["seed"] in (0, 1, 2)
        assert run.dir.startswith("/base/results/pacgan/")
        if found["method"] == "WGAN":
            assert (found["packing"], found["zmode"]) in [(2, 1), (3, 2)]
            assert found["hidden"] == [64, 64]
        else:
            assert ("opt.momentum" in found) == (found["opt.name"] == "sgd")
            assert 1e-5 <= found["lr"] <= 1e-1
            assert not (found["method"] == "ALI" and found["opt.name"] == "sgd")
            assert not (found["method"] == "GAN" and found["lr"] > 0.05)


def test_a_wandb_file_with_nested_parameters_runs_unchanged() -> None:
    sweep = plan("""
program: train.py
entity: lab
project: vision
description: a first try
method: grid
metric: {name: loss, goal: minimize}
parameters:
  batch_size: {values: [16, 32]}
  verbose: {value: true}
  optimizer:
    parameters:
      name: {values: [adam]}
      lr: {value: 1e-3}
command:
  - ${env}
  - ${interpreter}
  - ${program}
  - --out=my dir
  - ${args}
""")

    assert [run.command for run in sweep] == [
        (
            "/usr/bin/env python train.py '--out=my dir' --batch_size=16 --verbose=True"
            " --optimizer.name=adam --optimizer.lr=0.001"
        ),
        (
            "/usr/bin/env python train.py '--out=my dir' --batch_size=32 --verbose=True"
            " --optimizer.name=adam --optimizer.lr=0.001"
        ),
    ]
    assert sweep.name == "sweep"


def test_a_wandb_random_file_needs_only_its_run_cap() -> None:
    sweep = plan("""
program: train.py
method: random
run_cap: 20
parameters:
  lr: {min: -9.0, max: -2.0, distribution: log_uniform}
  layers: {min: 1, max: 4}
  dropout: {min: 0.0, max: 0.5}
  width: {distribution: q_log_uniform_values, q: 8, min: 32, max: 256}
  noise: {mu: 0, sigma: 0.1, distribution: normal}
  act: {values: [relu, gelu], probabilities: [0.9, 0.1]}
""")
    runs = params(sweep)

    assert len(runs) == 20
    for run in runs:
        assert 1.2e-4 < run["lr"] < 0.136
        assert run["layers"] in (1, 2, 3, 4)
        assert 0 <= run["dropout"] <= 0.5
        assert run["width"] % 8 == 0
        assert abs(run["noise"]) < 1
    assert {run["act"] for run in runs} <= {"relu", "gelu"}


def test_every_wandb_macro_is_known() -> None:
    macros = "${args_no_hyphens} ${args_json} ${args_json_file} ${args_no_boolean_flags}"
    sweep = plan_sweep(
        {
            "program": "my train.py",
            "command": ["${interpreter}", "${program}", *macros.split(), "${envvar:DATA}"],
            "parameters": {"lr": 0.1, "fast": True, "slow": False},
            "dir": "/r/{id}",
        }
    )
    (run,) = sweep

    assert run.command == (
        "python 'my train.py' lr=0.1 fast=True slow=False"
        """ '{"fast":true,"lr":0.1,"slow":false}'"""
        f' {run.dir}/params.json --lr=0.1 --fast "${{DATA}}"'
    )


def test_toml_and_yaml_give_the_same_sweep() -> None:
    toml = """
command = "python train.py {args}"
[fixed]
num_run = 5
num_epoch = 200
[[parameters]]
method = ["GAN", "ALI"]
num_packing = [1]
num_zmode = [1]
[[parameters]]
method = ["WGAN"]
num_packing = [3]
num_zmode = [1, 2]
"""

    same = plan_sweep(read_toml(toml, "sweep.toml"), base="/base")

    assert [(run.identity, run.command) for run in same] == [
        (run.identity, run.command) for run in plan(ANCESTOR)
    ]


def test_tomli_reads_toml_before_python_3_11(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))
    monkeypatch.setitem(sys.modules, "tomli", twin)
    monkeypatch.setitem(sys.modules, "tomllib", None)

    assert read_toml('command = "x {a}"\n[parameters]\na = [1]\n', "s.toml")["parameters"] == {
        "a": [1]
    }
    with pytest.raises(UsageError, match=r"s.toml:1: "):
        read_toml("a = \n", "s.toml")


def test_inline_parameters_are_a_sweep() -> None:
    command = {"command": "python t.py --lr {lr} --bs {bs} --seed {seed}"}

    sweep = plan_sweep(command, ["lr=1e-3,3e-4", "bs=32,64", "seed=range(3)"], base="/b")
    runs = list(sweep)

    assert sweep.count == 12
    assert runs[0].command == "python t.py --lr 0.001 --bs 32 --seed 0"
    assert runs[1].params == {"lr": 0.001, "bs": 32, "seed": 1}
    assert runs[-1].params == {"lr": 3e-4, "bs": 64, "seed": 2}
    assert runs[0].id == f"lr=0.001,bs=32,seed=0-{runs[0].identity[:8]}"
    assert runs[0].dir == f"/b/results/t/{runs[0].id}"


def test_parameters_after_a_file_override_it() -> None:
    sweep = plan(ANCESTOR, "num_zmode=7", "num_epoch=1,2", "+extra=x")

    assert params(sweep) == [
        {"num_run": 5, "method": m, "num_packing": p, "num_zmode": 7, "num_epoch": e, "extra": "x"}
        for m, p in [("GAN", 1), ("ALI", 1), ("WGAN", 3)]
        for e in (1, 2)
    ]


def test_an_override_of_an_unknown_parameter_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"no parameter num_zmod: did you mean 'num_zmode'"):
        plan(ANCESTOR, "num_zmod=7")
    with pytest.raises(UsageError, match=r"\+method: the sweep already has it"):
        plan(ANCESTOR, "+method=7")
    with pytest.raises(UsageError, match="given twice"):
        plan(ANCESTOR, "num_zmode=7", "num_zmode=8")


def test_one_parameter_of_a_zip_cannot_be_overridden() -> None:
    text = "{command: 'x {args}', parameters: {zip: {a: [1, 2], b: [3, 4]}}}"

    with pytest.raises(UsageError, match="a is zipped with b"):
        plan(text, "a=1")
    assert params(plan(text, "a,b=zip([5,6],[7,8])")) == [{"a": 5, "b": 7}, {"a": 6, "b": 8}]


def test_a_sweep_can_be_iterated_twice_with_the_same_runs() -> None:
    sweep = plan(EXAMPLE)

    assert list(sweep) == list(sweep)


def test_params_are_canonical_json() -> None:
    (run,) = plan_sweep({"command": "x {args}", "parameters": {"ü": "ä", "b": 1.0, "a": None}})

    assert run.params_json == '{"a":null,"b":1.0,"ü":"ä"}'
    assert json.loads(run.params_json) == run.params


def test_a_sweep_of_too_many_runs_is_refused_at_once() -> None:
    words = [f"p{n}=range(1000)" for n in range(4)]

    with pytest.raises(UsageError, match=r"1,000,000,000,000 runs"):
        plan_sweep({"command": "x {args}"}, words)
    with pytest.raises(UsageError, match=r"1,000,000,000,000 values are more"):
        plan_sweep({"command": "x {args}"}, ["a=range(1000000000000)"])


def test_equal_runs_are_dropped_with_a_note() -> None:
    sweep = plan("""
command: x {args}
parameters:
  - {a: [1, 2, 2], b: 1}
  - {a: [2, 3], b: 1}
""")

    assert [run.params["a"] for run in sweep] == [1, 2, 3]
    assert sweep.count == 3
    assert sweep.notes == [
        "a: 1 value given twice",
        "1 run was dropped because another run is the same",
    ]


def test_a_grid_takes_the_first_samples_and_says_so() -> None:
    sweep = plan("{command: 'x {a}', samples: 2, parameters: {a: [1, 2, 3]}}")

    assert [run.params["a"] for run in sweep] == [1, 2]
    assert sweep.count == 2
    assert "first 2 runs" in sweep.notes[0]


def test_names_come_from_the_definition_the_file_or_the_command() -> None:
    assert plan("{name: my sweep, command: echo}").name == "my-sweep"
    assert plan("{command: python a/b/train.py}").name == "sweep"
    assert plan_sweep({"command": "cd x && python a/b/train.py {i}"}, ["i=1"]).name == "train"
    assert plan_sweep({"command": "sh -c 'exit {i}'"}, ["i=1"]).name == "sh"


def test_dir_sets_the_folders_of_runs() -> None:
    sweep = plan("{command: 'x {a}', dir: 'out/{a}/{id}', parameters: {a: ['../up', .b]}}")

    assert [run.dir for run in sweep] == [
        f"/base/out/{label}/{run.id}" for label, run in zip(["_up", "b"], sweep, strict=True)
    ]
