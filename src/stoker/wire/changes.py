"""Selections of jobs, the verbs that change jobs, and their results."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stoker.core.job import ShortTime
from stoker.core.lifecycle import State
from stoker.wire.values import (
    MAX_POSITION,
    Bytes,
    Cpus,
    GpuMemory,
    Gpus,
    Name,
    NodeLabels,
    Priority,
    Ram,
    Retries,
    Share,
    TimeLimit,
    UnixTime,
)


class Selection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects jobs: by `ids` as typed (`1,2,5-9`, `@`, names), by state, by project, or all."""

    ids: str | None = None
    states: list[State] = []
    project: str | None = None
    all: bool = False


class WaitFor(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects jobs to wait for; with `unfinished` those that wait or run now, without held jobs.

    With `since` and `last` of an earlier Progress, `unfinished` means the jobs of that moment.
    """

    unfinished: bool = False
    since: UnixTime | None = None
    last: Annotated[int, msgspec.Meta(ge=0, le=MAX_POSITION)] | None = None


class Hold(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hold jobs that have not started until they are released."""


class Release(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Release held jobs."""


class Pause(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pause running jobs; with `queue` start no more jobs (of a project) instead."""

    queue: bool = False


class Resume(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resume paused and suspended jobs; with `queue` resume the queue or a project instead."""

    queue: bool = False


class Suspend(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Move the GPU memory of running jobs to host RAM: their GPUs are free until they are resumed.

    With `parked` nothing waits for them: a sweep goes on without them.
    """

    parked: bool = False


class Start(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start jobs before all others. Only GPUs that are in use can delay them.

    With `queue` only plan a turn at once.
    """

    queue: bool = False


class Preempt(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stop running jobs to make room; they wait again. With `suspend` they lose nothing."""

    suspend: bool = False


class Kill(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """End jobs: first their stop signal (TERM), then KILL when the grace time is over."""

    grace_s: ShortTime | None = None


class Remove(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Remove jobs and their logs; running jobs only with `kill`."""

    kill: bool = False


class Retry(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run jobs once more; with `fresh` in the working tree instead of the snapshot.

    With `reason` only jobs whose reason contains that text.
    """

    fresh: bool = False
    reason: str | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New values for jobs; a field that is left out keeps its value."""

    name: Name | msgspec.UnsetType | None = msgspec.UNSET
    project: Name | msgspec.UnsetType | None = msgspec.UNSET
    command: Bytes | msgspec.UnsetType = msgspec.UNSET
    log: Bytes | msgspec.UnsetType | None = msgspec.UNSET
    after: str | msgspec.UnsetType | None = msgspec.UNSET
    after_any: str | msgspec.UnsetType | None = msgspec.UNSET
    begin_at: UnixTime | msgspec.UnsetType | None = msgspec.UNSET
    timeout_s: TimeLimit | msgspec.UnsetType | None = msgspec.UNSET
    gpus: Gpus | msgspec.UnsetType = msgspec.UNSET
    retries: Retries | msgspec.UnsetType = msgspec.UNSET
    share: Share | msgspec.UnsetType | None = msgspec.UNSET
    gpu_mem_bytes: GpuMemory | msgspec.UnsetType | None = msgspec.UNSET
    cpus: Cpus | msgspec.UnsetType | None = msgspec.UNSET
    mem_bytes: Ram | msgspec.UnsetType | None = msgspec.UNSET
    nodes: list[Name] | msgspec.UnsetType | None = msgspec.UNSET
    on: Name | msgspec.UnsetType | None = msgspec.UNSET
    node_labels: NodeLabels | msgspec.UnsetType | None = msgspec.UNSET
    priority: Priority | msgspec.UnsetType = msgspec.UNSET


class Set(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change jobs that have not started; of running jobs only name, priority, retries, time limit."""

    to: Settings


class Move(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Move a waiting job to a position of the queue; 1 is the next to start.

    With `before` or `behind`, the job goes next to that waiting job, and the position does not count.
    """

    job: str
    position: Annotated[int, msgspec.Meta(ge=1, le=MAX_POSITION)] = 1
    before: str | None = None
    behind: str | None = None


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The new position of a job; `notice` if it also got another priority."""

    id: int
    position: int
    notice: str | None = None


class Refusal(msgspec.Struct, frozen=True):
    """Why a verb did not change a job."""

    id: int
    reason: str


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that a verb changed, and those that it refused to change."""

    ids: list[int]
    refused: list[Refusal] = []
    notice: str | None = None
