"""Options of Hydra's launcher, as fields of a submission or as options of a private engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stoker.core.job import Request
from stoker.errors import UsageError
from stoker.integrations.queue_options import make_name, read_queue_options, read_timeout
from stoker.task import messages
from stoker.task.options import GpuOptions

_QUEUE_ONLY = (
    *("project", "priority", "node", "gpu_model", "on_nan", "stall", "idle", "backoff"),
    *("preemptible", "preempt", "checkpoint", "signal", "grace", "cpus", "mem"),
)
_FOREGROUND_ONLY = ("devices", "max_workers")
# Options of `stoker add` that messages of the queue name, as options of the launcher.
OPTION_NAMES = {
    "-g": "hydra.launcher.gpus",
    "--gpu-mem": "hydra.launcher.gpu_mem",
    "--cpus": "hydra.launcher.cpus",
    "--mem": "hydra.launcher.mem",
    "--node": "hydra.launcher.node",
    "--on": "hydra.launcher.gpu_model",
}


class SweepOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The launcher's options, checked. `queue` are fields of a submission, `engine` opens a private one."""

    is_warm: bool
    resume: bool
    project: str
    queue: dict[str, Any]
    request: Request
    engine: messages.Open | None


def read_launcher_options(given: Mapping[str, Any], job_name: str) -> SweepOptions:
    """Read the options of the launcher; UsageError for a wrong value, and for one without effect."""
    foreground = given["foreground"]
    _refuse_ineffective(given, _QUEUE_ONLY if foreground else _FOREGROUND_ONLY, foreground)
    project = given["project"] or make_name([job_name])
    request, engine = Request(), None
    if foreground:
        gpus = GpuOptions(given["devices"], given["gpus"], 1, given["max_workers"])
        request = gpus.make_request(
            timeout_s=read_timeout(given["timeout"], spell_option("timeout")),
            retries=given["retries"],
            share=given["share"],
            gpu_mem=given["gpu_mem"],
        )
        engine = gpus.make_open(request.gpu_mem)
    return SweepOptions(
        is_warm=given["warm"] != "never",
        resume=given["resume"],
        project=project,
        queue={**_queue_options(given), "project": project, "sweep": project},
        request=request,
        engine=engine,
    )


def _queue_options(given: Mapping[str, Any]) -> dict[str, Any]:
    own = ("foreground", "resume", "project", *_FOREGROUND_ONLY)
    options = {name: value for name, value in given.items() if name not in own}
    return read_queue_options(options, spell_option)


def _refuse_ineffective(given: Mapping[str, Any], names: tuple[str, ...], foreground: bool) -> None:
    for name in names:
        if given[name]:
            remedy = "foreground=false" if foreground else "foreground=true"
            raise UsageError(
                f"hydra.launcher.{name} has an effect only with hydra.launcher.{remedy}"
            )


def spell_option(name: str) -> str:
    """Return how an option of the launcher is written on a command line of Hydra."""
    return f"hydra.launcher.{name}"
