"""Options of Hydra's launcher, as fields of a submission or as options of a private engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from stoker.cli.add_options import read_options
from stoker.core.durations import parse_duration
from stoker.core.job import Request
from stoker.errors import UsageError
from stoker.task import messages
from stoker.task.options import GpuOptions

# Options of the launcher that have another name at `stoker add`.
_ADD_NAMES = {"gpu_model": "on"}
_QUEUE_ONLY = (
    *("project", "priority", "node", "gpu_model", "on_nan", "stall", "idle", "backoff"),
    *("preemptible", "preempt", "signal", "grace", "cpus", "mem"),
)
_FOREGROUND_ONLY = ("devices", "max_workers")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\s,/]+")
_MAX_NAME = 200


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
    timeout_s = _read_timeout(given["timeout"])
    request, engine = Request(), None
    if foreground:
        gpus = GpuOptions(given["devices"], given["gpus"], 1, given["max_workers"])
        request = gpus.make_request(
            timeout_s=timeout_s,
            retries=given["retries"],
            share=given["share"],
            gpu_mem=given["gpu_mem"],
        )
        engine = gpus.make_open(request.gpu_mem)
    return SweepOptions(
        is_warm=given["warm"] != "never",
        resume=given["resume"],
        project=project,
        queue={
            **_queue_options(given),
            "timeout_s": timeout_s,
            "project": project,
            "sweep": project,
        },
        request=request,
        engine=engine,
    )


def _queue_options(given: Mapping[str, Any]) -> dict[str, Any]:
    own = ("foreground", "resume", "project", "timeout", *_FOREGROUND_ONLY)
    names = {_ADD_NAMES.get(name, name): name for name in given if name not in own}
    options = {name: given[source] for name, source in names.items()}

    def spell(name: str) -> str:
        return f"hydra.launcher.{names[name.replace('-', '_')]}"

    return {**read_options(options, spell), "gpus": given["gpus"]}  # 0 GPUs are an option too


def _refuse_ineffective(given: Mapping[str, Any], names: tuple[str, ...], foreground: bool) -> None:
    for name in names:
        if given[name]:
            remedy = "foreground=false" if foreground else "foreground=true"
            raise UsageError(
                f"hydra.launcher.{name} has an effect only with hydra.launcher.{remedy}"
            )


def _read_timeout(text: str | None) -> float | None:
    try:
        return None if text is None else parse_duration(text)
    except UsageError as error:
        raise UsageError(f"hydra.launcher.timeout: {error}") from None


def make_name(overrides: list[str]) -> str:
    """Return a name for a job: its overrides, without characters that names may not have."""
    text = ":".join(_FORBIDDEN.sub("_", each) for each in overrides)
    return text[:_MAX_NAME].lstrip("-") or "job"
