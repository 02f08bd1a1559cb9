"""State of one slot: its lease, its attempts, and why it is closed."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from stoker.core.slot import Slot
from stoker.engine.running_attempt import RunningAttempt

# Jobs shorter than QUICK_S are claimed ahead: about AHEAD_S of work for each slot.
QUICK_S = 0.1
AHEAD_S = 0.04
_MAX_AHEAD = 32
# How a user took a slot out of use. A removed slot is no longer shown.
DRAINED = "drained"
REMOVED = "removed"


class LeaseRefusal(msgspec.Struct, frozen=True):
    """Why a slot could not be leased. `is_fault`: no process can lease it, so no other process holds it."""

    reason: str
    is_fault: bool = False


class Unleased(msgspec.Struct, frozen=True):
    """The slot is not ours. After a refusal it is requested again at `retry_at`."""

    refusal: LeaseRefusal | None = None
    retry_at: float = 0.0


class LeaseRequested(msgspec.Struct, frozen=True):
    """The executor was asked for the slot. `refusal` is the answer to the request before."""

    refusal: LeaseRefusal | None = None


class LeaseHeld(msgspec.Struct, frozen=True):
    """The slot is ours."""


Lease = Unleased | LeaseRequested | LeaseHeld


class ClosedBy(enum.Enum):
    """Where a reason comes from that keeps new jobs off a slot."""

    NODE = "node"  # the node cannot be reached
    DRAIN = "drain"  # a user has drained the node
    LACK = "lack"  # the node lacks a resource for a while
    GPU = "gpu"  # the GPU is lost, faulty or used by other processes
    USER = "user"  # DRAINED or REMOVED
    TURN = "turn"  # another user is next
    RULE = "rule"  # the rules of the box forbid it


_set = msgspec.Struct.__setattr__


class SlotState(msgspec.Struct):
    """What one slot is doing now. Every change is reported to `touch`.

    The lease is in exactly one state. Occupation, the reasons of closing and unreleased memory are
    independent of it and of each other: a job goes on while its slot is drained and its node away.

    A shared slot is one tenant's part of a GPU; `whole_slot` is the index of the slot of its whole GPU.
    Nothing is planned on a shared slot.
    """

    slot: Slot
    touch: Callable[[int], None]
    whole_slot: int | None = None
    lease: Lease = Unleased()
    closed: dict[ClosedBy, str] = msgspec.field(default_factory=dict)  # changed by `close`
    current: RunningAttempt | None = None
    followers: deque[RunningAttempt] = msgspec.field(default_factory=deque)  # start after `current`
    tenants: int = 0  # how many shared slots of its GPU are occupied
    releasing: bool = False  # the memory of the last job is not free yet
    ahead: int = 0  # how many jobs to claim ahead for this slot
    job_s: float = 0.0  # how long the last job here took
    gathered: tuple[str, ...] = ()  # lease keys that are ours while others of the slot are not

    def __setattr__(self, name: str, value: Any) -> None:
        _set(self, name, value)
        self.touch(self.slot.index)

    @property
    def is_held(self) -> bool:
        """Whether the slot is ours."""
        return isinstance(self.lease, LeaseHeld)

    @property
    def refusal(self) -> LeaseRefusal | None:
        """Why the last request for its lease was refused; None if the slot is ours or was not refused."""
        return None if isinstance(self.lease, LeaseHeld) else self.lease.refusal

    @property
    def is_open(self) -> bool:
        """Whether jobs may be started here at all."""
        return not self.closed

    @property
    def is_idle(self) -> bool:
        """Whether no attempt uses its GPU."""
        return self.current is None and not self.tenants and self.whole_slot is None

    @property
    def is_free(self) -> bool:
        """Whether a job could start here now."""
        return self.is_held and self.is_idle and self.is_open and not self.releasing

    @property
    def takes_ahead(self) -> bool:
        """Whether it takes the next attempt claimed ahead when it becomes vacant."""
        adopted = self.current is not None and self.current.adopted
        return (
            self.ahead > 0
            and self.is_held
            and self.is_open
            and not (adopted or self.followers or self.releasing or self.tenants)
            and self.whole_slot is None
        )

    @property
    def drained(self) -> str | None:
        """How a user took it out of use: DRAINED, REMOVED or None."""
        return self.closed.get(ClosedBy.USER)

    @property
    def fault(self) -> str | None:
        """Why it gets no jobs although no user took it out of use."""
        sources = (
            ClosedBy.NODE,
            ClosedBy.DRAIN,
            ClosedBy.LACK,
            ClosedBy.GPU,
            ClosedBy.RULE,
            ClosedBy.TURN,
        )
        return next((self.closed[each] for each in sources if each in self.closed), None)

    def close(self, source: ClosedBy, reason: str | None) -> None:
        """Close the slot for a reason, or withdraw the reason of this source (None)."""
        if reason is None:
            self.closed.pop(source, None)
        else:
            self.closed[source] = reason
        self.touch(self.slot.index)

    def drop_lease(self) -> None:
        """Note that the slot is neither ours nor requested any more."""
        if not isinstance(self.lease, Unleased):
            self.lease = Unleased(self.refusal)

    def learn_duration(self, duration_s: float) -> None:
        """Claim the more jobs ahead, the shorter they are."""
        _set(self, "job_s", duration_s)
        quick = duration_s < QUICK_S
        self.ahead = min(_MAX_AHEAD, 1 + int(AHEAD_S / max(duration_s, 1e-4))) if quick else 0
