"""The folder of a sweep's run: made when the run starts, with its parameters in a file.

A run of a W&B sweep file gets them in W&B's form too, so that `wandb.init()` fills `wandb.config` without a
server. The submission's environment marks such runs: `STOKER_WANDB_GROUPS` names the nested parameters.

W&B and MLflow write into the folder unless the job's environment says where: `stoker results` finds their
metrics there. MLflow gets a database, because its newer versions refuse to write files.
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
PARKED = (
    ".parked"  # the sweep's controller has suspended this attempt, and leaves it alone from then on
)

_WANDB_VARIABLE = "WANDB_SWEEP_PARAM_PATH"

_WANDB_FOLDER, _MLFLOW_URI = "WANDB_DIR", "MLFLOW_TRACKING_URI"
_DATABASE = "sqlite:///{}/mlflow.db"
_SPECIAL_IN_URI = "%?"

# `exec` keeps the process: the command only gets more variables.
_RUN = f'export {VARIABLE}="$1" {_WANDB_FOLDER}="${{{_WANDB_FOLDER}:-$1}}"; '
_WANDB = f'export {_WANDB_VARIABLE}="$1/{WANDB_PARAMS}"; '
_MLFLOW = f'export {_MLFLOW_URI}="${{{_MLFLOW_URI}:-{_DATABASE.format("$1")}}}"; '
_EXEC = 'shift; exec "$@"'


def make_run_folder(folder: str, params: str | None, env: Mapping[str, str]) -> None:
    """Make the folder, and write the parameters atomically; `env` is the environment of the run's job.

    A request to stop was for an earlier attempt, and so was a mark that it was parked.
    """
    os.makedirs(folder, exist_ok=True)
    for name in (STOP, PARKED):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))
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
    if not env.get(_WANDB_FOLDER):
        variables[_WANDB_FOLDER] = folder
    if not env.get(_MLFLOW_URI) and _fits_uri(folder):
        variables[_MLFLOW_URI] = _DATABASE.format(folder)
    if WANDB_GROUPS in env:
        variables[_WANDB_VARIABLE] = os.path.join(folder, WANDB_PARAMS)
    return variables


def enter_run_folder(folder: str, words: list[str], env: Mapping[str, str]) -> list[str]:
    """The words that run a command with the variables of its run."""
    has_params, fits_uri = WANDB_GROUPS in env, _fits_uri(folder)
    enter = f"{_RUN}{_WANDB * has_params}{_MLFLOW * fits_uri}{_EXEC}"
    return ["/bin/sh", "-c", enter, "sh", folder, *words]


def _fits_uri(folder: str) -> bool:
    """Whether a folder can be in the address of a database as it is."""
    return not any(char in folder for char in _SPECIAL_IN_URI)
