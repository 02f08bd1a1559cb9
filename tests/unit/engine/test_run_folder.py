"""The variables of a sweep's run: where it, and the loggers that it uses, write."""

from __future__ import annotations

import subprocess

import pytest

from stoker.core.wandb_params import WANDB_GROUPS
from stoker.engine.run_folder import enter_run_folder, run_variables

NAMES = ("STOKER_RUN_DIR", "WANDB_DIR", "MLFLOW_TRACKING_URI", "WANDB_SWEEP_PARAM_PATH")


def both_ways(folder: str, env: dict[str, str]) -> dict[str, str]:
    """The variables as a warm run gets them; checks that a command gets the same."""
    variables = {**env, **run_variables(folder, env)}
    words = enter_run_folder(folder, ["/usr/bin/env"], env)
    seen = dict(
        line.split("=", 1)
        for line in subprocess.check_output(words, env=env, text=True).splitlines()
    )
    assert {name: seen.get(name) for name in NAMES} == {n: variables.get(n) for n in NAMES}
    return variables


def test_loggers_write_into_the_folder_of_the_run() -> None:
    found = both_ways("/r/lr=0.1,b=2-ab", {"WANDB_DIR": ""})

    assert found["WANDB_DIR"] == "/r/lr=0.1,b=2-ab"
    assert found["MLFLOW_TRACKING_URI"] == "sqlite:////r/lr=0.1,b=2-ab/mlflow.db"
    assert "WANDB_SWEEP_PARAM_PATH" not in found


def test_loggers_write_where_the_user_has_said() -> None:
    env = {"WANDB_DIR": "/mine", "MLFLOW_TRACKING_URI": "http://host:5000", WANDB_GROUPS: ""}

    found = both_ways("/r/x", env)

    assert (found["WANDB_DIR"], found["MLFLOW_TRACKING_URI"]) == ("/mine", "http://host:5000")
    assert found["WANDB_SWEEP_PARAM_PATH"] == "/r/x/wandb_params.yaml"


@pytest.mark.parametrize("folder", ["/r/a%20b", "/r/a?b"])
def test_a_folder_that_is_no_address_of_a_database_is_not_given_to_mlflow(folder: str) -> None:
    found = both_ways(folder, {})

    assert found["WANDB_DIR"] == folder
    assert "MLFLOW_TRACKING_URI" not in found
