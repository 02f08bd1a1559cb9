"""Stoker: a job scheduler for GPUs, and its Python API."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing it from typing would cost more than the rest of `--version`
if TYPE_CHECKING:
    from typing import Any

    from stoker.client.client import Client
    from stoker.client.transport import BrokenError, NoDaemonError
    from stoker.errors import ConflictError, NotFoundError, StokerError, UsageError
    from stoker.reporting import report
    from stoker.sweep_results.results import Results, results
    from stoker.sweep_results.run_record import RunRecord
    from stoker.task.base import Task
    from stoker.task.call_files import JobError, RemoteError
    from stoker.task.engine_session import EngineLostError
    from stoker.task.executor import Executor, Future
    from stoker.task.job import Job
    from stoker.task.run import JobsFailedError, run
    from stoker.task.sweep import SweepFailedError, sweep

__all__ = [
    "BrokenError",
    "Client",
    "ConflictError",
    "EngineLostError",
    "Executor",
    "Future",
    "Job",
    "JobError",
    "JobsFailedError",
    "NoDaemonError",
    "NotFoundError",
    "RemoteError",
    "Results",
    "RunRecord",
    "StokerError",
    "SweepFailedError",
    "Task",
    "UsageError",
    "__version__",
    "report",
    "results",
    "run",
    "sweep",
]

_MODULES = {
    "BrokenError": "stoker.client.transport",
    "Client": "stoker.client.client",
    "ConflictError": "stoker.errors",
    "EngineLostError": "stoker.task.engine_session",
    "Executor": "stoker.task.executor",
    "Future": "stoker.task.executor",
    "Job": "stoker.task.job",
    "JobError": "stoker.task.call_files",
    "JobsFailedError": "stoker.task.run",
    "NoDaemonError": "stoker.client.transport",
    "NotFoundError": "stoker.errors",
    "RemoteError": "stoker.task.call_files",
    "Results": "stoker.sweep_results.results",
    "RunRecord": "stoker.sweep_results.run_record",
    "StokerError": "stoker.errors",
    "SweepFailedError": "stoker.task.sweep",
    "Task": "stoker.task.base",
    "UsageError": "stoker.errors",
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


def load_ipython_extension(shell: Any) -> None:
    """Add the magic `%%stoker` to a notebook; IPython calls this for `%load_ext stoker`."""
    from stoker.notebook.extension import load

    load(shell)


def __dir__() -> list[str]:
    return __all__
