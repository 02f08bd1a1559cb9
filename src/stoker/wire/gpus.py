"""GPUs and nodes: their state, their use, and the verbs that change them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from stoker.core.usage import Foreigner, GpuUse, JobUse
from stoker.wire.values import MAX_GPUS, MAX_POSITION, UnixTime

MAX_RESERVE_S = 366 * 86_400.0


class GpusQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Selects whether the answer has the samples of the last minutes."""

    history: bool = False


class GpuOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change a slot: `add` it (or use it again), `drain` it, or `remove` it."""

    action: Literal["add", "drain", "remove"]
    gpu: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class GpuChange(msgspec.Struct, frozen=True, kw_only=True):
    """The changed slots, the jobs that still run there, and a warning if there is one."""

    slots: list[str]
    jobs: list[int] = []
    notice: str | None = None


class Reserve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keep so many GPUs of this machine for so long, from now or from a later time on."""

    gpus: Annotated[int, msgspec.Meta(ge=1, le=MAX_GPUS)]
    for_s: Annotated[float, msgspec.Meta(gt=0, le=MAX_RESERVE_S)]
    begin_at: UnixTime | None = None


class EndReservation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """End a reservation now, or forget one that has not begun."""

    id: Annotated[int, msgspec.Meta(ge=1, le=MAX_POSITION)]


class UserReservationInfo(msgspec.Struct, kw_only=True):
    """A reservation of this queue's user: when it begins and ends, and which GPUs it has (`held`).

    `elsewhere` counts GPUs in use by other Stokers of the user. `waits_for` says why it has less than
    `gpus`; None if it has all, or has not begun.
    """

    id: int
    gpus: int
    begin_at: float
    end_at: float
    held: list[str] = []
    elsewhere: int = 0
    waits_for: str | None = None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Samples in the order of their times; None where a value is unknown."""

    at: list[float] = []
    mem_bytes: list[int | None] = []
    utilisation_pct: list[float | None] = []


class GpuTenant(msgspec.Struct, frozen=True, kw_only=True):
    """A job on a GPU: the memory that it uses there, and the memory that is set aside for it.

    A job that shares its GPU with none has all of it. None where nothing is measured.
    """

    job: int
    name: str | None
    project: str | None
    mem_used_bytes: int | None
    mem_reserved_bytes: int
    utilisation_pct: float | None


class GpuInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU at the last sample, what the queue does there, and which other processes use it."""

    label: str
    name: str | None
    mem_total_bytes: int
    mem_used_bytes: int
    mem_reserved_bytes: int  # memory that its jobs may use
    utilisation_pct: int | None
    temperature_c: int | None
    power_w: float | None
    lost: bool
    slot: str | None  # None: the queue does not use this GPU
    jobs: list[int]
    closed: str | None
    drained: str | None
    users: list[Foreigner]
    reserved_until: float | None = None  # by the queue's user
    history: History
    held_by: str | None = None  # the process that holds its lease
    tenants: list[GpuTenant] = []
    kept_for: int | None = None  # the waiting job that a free GPU is kept for
    kept_needs: int | None = None  # how many GPUs that job needs


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of the cluster. `away`: why it cannot be reached; `since`: from when on.

    `drained`: why a user lets no job start there, may be empty. `lacks`: why none starts for a while.
    """

    name: str
    id: str
    address: str
    is_head: bool
    state: Literal["up", "away"]
    version: str
    labels: dict[str, str]
    gpus: int
    jobs: int
    away: str | None = None
    since: float | None = None
    drained: str | None = None
    lacks: str | None = None


class NodeOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change a node: `forget` one that does not come back, or let no job start there until `undrain`.

    `force` forgets a node although its jobs may still run: for a machine that is known to be off.
    """

    action: Literal["forget", "drain", "undrain"]
    node: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    reason: Annotated[str, msgspec.Meta(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*\Z")] = ""
    force: bool = False


class GpuCurve(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU now, and its last minutes: seconds ago, used bytes, utilisation in percent."""

    now: GpuUse
    past: list[tuple[float, int, int | None]]


class JobCurve(msgspec.Struct, frozen=True, kw_only=True):
    """A running job now, and its last minutes: seconds ago, used bytes, percent of the GPU's time."""

    id: int
    now: JobUse
    past: list[tuple[float, int | None, float | None]]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What GPUs and jobs use; empty without NVML. `age_s` is the age of the last sample."""

    age_s: float | None
    gpus: list[GpuCurve]
    jobs: list[JobCurve]
