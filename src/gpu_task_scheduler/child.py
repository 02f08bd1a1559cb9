"""Entry points of a task's process; they import little."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpu_task_scheduler.gpu_task import GPUTask


def run_task(task: GPUTask) -> None:
    """Run a task that the scheduling process has made."""
    _add_folder_to_path()
    task.main()


def run_named_task(name: str, config: dict[str, Any], work_dir: str) -> None:
    """Make and run a task whose module only this process imports.

    If the task needs another environment, this process executes itself again with it and passes the
    task on: libraries read some variables only when they are loaded.
    """
    from importlib import import_module

    _add_folder_to_path()
    module, _, attribute = name.rpartition(".")
    task: GPUTask = getattr(import_module(module), attribute)(config, work_dir)
    env = read_env(task)
    if env.items() <= os.environ.items():
        task.main()
        return
    from stoker.task.call_files import write_call

    write_call(sys.orig_argv[-1], run_task, (task,), is_loud=True)
    os.execve(sys.executable, sys.orig_argv, {**os.environ, **env})  # noqa: S606 - this program


def read_env(task: GPUTask) -> dict[str, str]:
    """Return the environment that a task asks for, as text."""
    return {str(name): str(value) for name, value in (task.required_env() or {}).items()}


def _add_folder_to_path() -> None:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
