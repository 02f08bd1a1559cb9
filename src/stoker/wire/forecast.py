"""What if: how jobs that are not in the queue would run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from stoker.wire.jobs import TimelinePlan
from stoker.wire.values import Cpus, GpuMemory, Gpus, Name, Priority, Ram, Share, Text, TimeLimit


class WhatIf(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs that are not in the queue, all alike.

    The command, the folder and `params` (of a run of a sweep) tell which known jobs they are like. `run_s`
    is how long each takes, if that is known better.
    """

    command: Text
    cwd: str = ""
    params: dict[str, Any] = {}
    runs: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 1
    run_s: TimeLimit | None = None
    name: Name | None = None
    project: Name | None = None
    gpus: Gpus = 1
    share: Share | None = None
    gpu_mem_bytes: GpuMemory | None = None
    cpus: Cpus | None = None
    mem_bytes: Ram | None = None
    priority: Priority = 0


class ProjectDelay(msgspec.Struct, frozen=True, kw_only=True):
    """How much later the waiting jobs of a project would be over."""

    project: str | None
    delay_s: float


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """When the jobs would start and be over, and what they would delay.

    `like` says which jobs `run_s` was measured on: of the same kind, of the same program, or any. `planned`
    has their expected runs; their ids are negative. `problem` says why nothing can be foretold.
    """

    run_s: float | None = None
    like: Literal["given", "kind", "program", "any"] | None = None
    start_at: float | None = None
    end_at: float | None = None
    delays: list[ProjectDelay] = []
    planned: list[TimelinePlan] = []
    paused: str | None = None  # what is paused and why; the times count from its end
    problem: str | None = None
