"""The folder of a sweep's run: made when the run starts, with its parameters in a file."""

from __future__ import annotations

import os

LOG = "log.txt"
PARAMS = "params.json"
VARIABLE = "STOKER_RUN_DIR"

# `exec` keeps the process: the command only gets one more variable.
_ENTER = f'export {VARIABLE}="$1"; shift; exec "$@"'


def make_run_folder(folder: str, params: str | None) -> None:
    """Make the folder, and write the parameters atomically."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, PARAMS)
    if params is None or os.path.exists(path):
        return
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(f"{params}\n")
    os.replace(f"{path}.new", path)


def enter_run_folder(folder: str, words: list[str]) -> list[str]:
    """The words that run a command with the variable of its folder."""
    return ["/bin/sh", "-c", _ENTER, "sh", folder, *words]
