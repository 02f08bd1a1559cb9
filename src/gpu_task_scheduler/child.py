"""What runs in the fresh process of a task; it imports no more than it must."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpu_task_scheduler.gpu_task import GPUTask


def run_task(task: GPUTask) -> None:
    """Run a task that was made, and asked for its environment, by the scheduling process."""
    _see_own_folder()
    task.main()


def run_named_task(name: str, config: dict[str, Any], work_dir: str) -> None:
    """Make and run a task whose module only this process imports.

    If it wants another environment this process starts once more with it, and goes on with the task
    as it is: libraries read some variables only when they are loaded.
    """
    from importlib import import_module

    _see_own_folder()
    module, _, attribute = name.rpartition(".")
    task: GPUTask = getattr(import_module(module), attribute)(config, work_dir)
    env = read_env(task)
    if env.items() <= os.environ.items():
        task.main()
        return
    from stoker.task.call_files import write_call

    write_call(sys.orig_argv[-1], run_task, (task,), is_loud=True)
    os.execve(sys.executable, sys.orig_argv, {**os.environ, **env})  # noqa: S606 - ourselves


def read_env(task: GPUTask) -> dict[str, str]:
    """The environment that a task asks for, as text."""
    return {str(name): str(value) for name, value in (task.required_env() or {}).items()}


def _see_own_folder() -> None:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
