"""Stoker: a job scheduler for GPUs, and its Python API."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing it from typing would cost more than the rest of `--version`
if TYPE_CHECKING:
    from typing import Any

    from stoker.client.client import Client
    from stoker.errors import StokerError
    from stoker.reporting import report
    from stoker.sweep_results.results import results
    from stoker.task.base import Task
    from stoker.task.executor import Executor
    from stoker.task.run import run
    from stoker.task.sweep import sweep

__all__ = [
    "Client",
    "Executor",
    "StokerError",
    "Task",
    "__version__",
    "report",
    "results",
    "run",
    "sweep",
]

_MODULES = {
    "Client": "stoker.client.client",
    "Executor": "stoker.task.executor",
    "StokerError": "stoker.errors",
    "Task": "stoker.task.base",
    "report": "stoker.reporting",
    "results": "stoker.sweep_results.results",
    "run": "stoker.task.run",
    "sweep": "stoker.task.sweep",
}


def __getattr__(name: str) -> Any:
    """Import a name of the API when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'stoker' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
