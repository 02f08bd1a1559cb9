"""GPUs and nodes: their state, their use, and the verbs that change them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from stoker.core.usage import Foreigner, GpuUse, JobUse


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


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Samples in the order of their times; None where a value is unknown."""

    at: list[float] = []
    mem_bytes: list[int | None] = []
    utilisation_pct: list[float | None] = []


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
    history: History


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of the cluster. `away`: why nothing can start there; `since`: from when on."""

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


class NodeOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change a node: `forget` one that does not come back."""

    action: Literal["forget"]
    node: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


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
