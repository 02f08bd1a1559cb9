"""The folder of a sweep's run: made when the run starts, with its parameters in a file.

A run of a W&B sweep file gets them in W&B's form too, so that `wandb.init()` fills `wandb.config` without a
server. The submission's environment marks such runs: `STOKER_WANDB_GROUPS` names the nested parameters.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping

from stoker.core.wandb_params import WANDB_GROUPS, to_wandb_params

LOG = "log.txt"
PARAMS = "params.json"
WANDB_PARAMS = "wandb_params.yaml"
VARIABLE = "STOKER_RUN_DIR"
STOP = ".stop"  # stoker.report sees it

_WANDB_VARIABLE = "WANDB_SWEEP_PARAM_PATH"

# `exec` keeps the process: the command only gets more variables.
_ENTER = f'export {VARIABLE}="$1"; shift; exec "$@"'
_ENTER_WANDB = f'export {_WANDB_VARIABLE}="$1/{WANDB_PARAMS}"; {_ENTER}'


def make_run_folder(folder: str, params: str | None, env: Mapping[str, str]) -> None:
    """Make the folder, and write the parameters atomically; `env` is the environment of the run's job.

    A request to stop was for an earlier attempt.
    """
    os.makedirs(folder, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, STOP))
    if params is None:
        return
    _write_once(os.path.join(folder, PARAMS), lambda: f"{params}\n")
    groups = env.get(WANDB_GROUPS)
    if groups is not None:
        _write_once(
            os.path.join(folder, WANDB_PARAMS), lambda: to_wandb_params(params, groups.split(","))
        )


def _write_once(path: str, make: Callable[[], str]) -> None:
    if os.path.exists(path):
        return
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(make())
    os.replace(f"{path}.new", path)


def run_variables(folder: str, env: Mapping[str, str]) -> dict[str, str]:
    """The variables of a run; `env` is the environment of its job."""
    variables = {VARIABLE: folder}
    if WANDB_GROUPS in env:
        variables[_WANDB_VARIABLE] = os.path.join(folder, WANDB_PARAMS)
    return variables


def enter_run_folder(folder: str, words: list[str], env: Mapping[str, str]) -> list[str]:
    """The words that run a command with the variables of its run."""
    enter = _ENTER_WANDB if WANDB_GROUPS in env else _ENTER
    return ["/bin/sh", "-c", enter, "sh", folder, *words]
