"""Allocations of a batch system, and the rules by which the queue asks for them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from stoker.core.allocation import Stage

_Line = Annotated[str, msgspec.Meta(min_length=1, max_length=1000, pattern=r"^[^\x00\n]*\Z")]


class AllocationInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An allocation: Slurm's id, its node, and why it is queued or given back."""

    id: int
    node: str
    stage: Stage
    why: str | None = None
    jobs: int = 0
    left_s: float | None = None


class AllocationRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule and its allocations. `wanted`: how many GPUs waiting jobs could use."""

    id: int
    time_s: float
    gpus: int
    most: int
    idle_s: float
    options: list[str]
    setup: str | None = None
    may_cut: bool = False
    paused: str | None = None
    failure: str | None = None
    is_removed: bool = False
    wanted: int = 0
    trouble: str | None = None
    allocations: list[AllocationInfo] = []


class NewAllocationRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new rule: ask Slurm for allocations of this size while jobs wait that fit them."""

    time_s: Annotated[float, msgspec.Meta(ge=60, le=366 * 86400)]
    gpus: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    most: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    idle_s: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 300.0
    options: Annotated[list[_Line], msgspec.Meta(max_length=100)] = []
    setup: Annotated[str, msgspec.Meta(min_length=1, max_length=4000)] | None = None
    may_cut: bool = False


class AllocationOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change a rule: `pause` asks for nothing more, `rm` also gives back what it has.

    With `force`, `rm` does not wait for the jobs there: they wait again.
    """

    action: Literal["rm", "pause", "resume"]
    rule: Annotated[int, msgspec.Meta(ge=1)]
    force: bool = False
