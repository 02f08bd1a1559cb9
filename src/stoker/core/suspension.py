"""Suspension of a job: where it stands between running on its GPUs and waiting in host RAM."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec


class Stage(str, enum.Enum):
    """Stage of a suspension. The database has the value."""

    SUSPENDING = "suspending"  # the driver moves its GPU memory to host RAM; it still has its slots
    SUSPENDED = "suspended"  # it has no slot, and waits for `stoker resume`
    QUEUED = "queued"  # it has no slot, and waits for its GPUs in the order of the queue
    RESUMING = "resuming"  # it has its slots again; the driver moves its memory back


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded of a suspension, before the driver is called.

    `held_bytes` is the memory that the job held, by the key of the GPU; `note` says what went wrong last.
    `resumes` lets the job wait for its GPUs at once, as after a preemption. A `parked` job is one that its
    sweep goes on without.
    """

    stage: Stage
    held_bytes: Mapping[str, int] = {}
    note: str | None = None
    resumes: bool = False
    parked: bool = False

    @property
    def has_slots(self) -> bool:
        """Whether the job occupies its slots."""
        return self.stage in (Stage.SUSPENDING, Stage.RESUMING)

    @property
    def is_parked(self) -> bool:
        """Whether it stays suspended until the user resumes it, and its sweep goes on without it."""
        return self.parked and self.stage is Stage.SUSPENDED

    @property
    def most_bytes(self) -> int:
        """The memory that it needs on the GPU where it held the most."""
        return max(self.held_bytes.values(), default=0)

    def now(self, stage: Stage, note: str | None = None) -> Suspension:
        """The same suspension at another stage."""
        return msgspec.structs.replace(self, stage=stage, note=note)

    def measured(self, held_bytes: Mapping[str, int]) -> Suspension:
        """The same suspension with a newer measurement; of two figures the larger one counts."""
        keys = self.held_bytes.keys() | held_bytes.keys()
        most = {key: max(self.held_bytes.get(key, 0), held_bytes.get(key, 0)) for key in keys}
        return msgspec.structs.replace(self, held_bytes=most)


def time_limit_s(held_bytes: Mapping[str, int]) -> float:
    """How long the driver may take for a suspension or a resumption: ten times what was measured."""
    return _LEAST_LIMIT_S + sum(held_bytes.values()) / _SLOWEST_BYTES_PER_S


def ram_needed_bytes(held_bytes: Mapping[str, int]) -> int:
    """The host RAM that must be available: what the job holds on its GPUs, and a margin."""
    held = sum(held_bytes.values())
    return held + max(_LEAST_MARGIN_BYTES, held // 20)


_LEAST_LIMIT_S = 60.0
_SLOWEST_BYTES_PER_S = 200e6
_LEAST_MARGIN_BYTES = 1 << 30
