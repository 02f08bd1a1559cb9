"""A running attempt: from its claim to its end."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from stoker.core.failure import FailureClass
from stoker.core.job import Attempt, Ending
from stoker.core.slot import Slot
from stoker.core.suspension import Suspension
from stoker.engine.queue import QueueEntry


class ClaimedAhead(msgspec.Struct):
    """Claimed while all slots were busy: the first slot that becomes vacant takes it."""

    revoking: bool = False  # the executor was asked to give it back


class Starting(msgspec.Struct, frozen=True):
    """Its slots are known; its process is not reported yet."""


class Running(msgspec.Struct, frozen=True):
    """It has a process. `not_suspended` says why the last attempt to suspend it failed."""

    pid: int
    started_at_us: int
    not_suspended: str | None = None


class Paused(msgspec.Struct, frozen=True):
    """It has a process that is stopped, `since` by the engine's clock."""

    pid: int
    started_at_us: int
    since: float


class Suspended(msgspec.Struct, frozen=True):
    """It has a process whose GPU memory is, or is being moved, in host RAM.

    `home_slots` are the slots of whole GPUs to which it goes back. `is_adopted` until the executor has
    confirmed that an attempt of an earlier engine is alive.
    """

    pid: int
    started_at_us: int
    since: float
    suspension: Suspension
    home_slots: tuple[Slot, ...]
    is_adopted: bool = False


Phase = ClaimedAhead | Starting | Running | Paused | Suspended
_WITH_PROCESS = (Running, Paused, Suspended)
STARTING = Starting()


class EndRequest(msgspec.Struct, frozen=True):
    """Stoker's decision to end an attempt. `is_sent`: the attempt itself was asked, by a signal."""

    ending: Ending
    reason: str
    grace_s: float = 0.0
    is_sent: bool = False


class RunningAttempt(msgspec.Struct, kw_only=True):
    """An attempt from its claim to its end.

    Its phase and the request to end it are independent: an attempt can be ended in every phase.
    """

    key: str
    attempt: Attempt
    entry: QueueEntry
    slots: tuple[Slot, ...]
    node: str = ""  # empty for this machine
    phase: Phase = STARTING
    end_request: EndRequest | None = None
    begun: float = 0.0
    deadline: float | None = (
        None  # end of its time limit or, while it is ended, of its grace period
    )
    paused_s: float = 0.0  # sum of its earlier pauses
    taken_by: str | None = None  # label of the slot that took it after it was claimed ahead
    adopted: bool = False  # an earlier engine started it: the executor does not know its slots
    revived: bool = False  # it was given up with its node: without a status it runs again
    log: str | None = None
    trace: str | None = None  # the file that shows why it failed, if that is not its log
    log_since: int = 0  # bytes of that file that earlier attempts wrote
    learned_mem_bytes: int = 0  # RAM that attempts of its kind used; 0 if that is unknown
    failure: FailureClass | None = None  # of an attempt that has ended

    @property
    def pid(self) -> int | None:
        """Its process; None before that is reported."""
        phase = self.phase
        return phase.pid if isinstance(phase, _WITH_PROCESS) else None

    @property
    def started_at_us(self) -> int | None:
        """When its process started, in microseconds of the Unix epoch."""
        phase = self.phase
        return phase.started_at_us if isinstance(phase, _WITH_PROCESS) else None

    @property
    def is_claimed_ahead(self) -> bool:
        """Whether it waits for the first slot that becomes vacant."""
        return isinstance(self.phase, ClaimedAhead)

    @property
    def is_paused(self) -> bool:
        """Whether its process is stopped."""
        return isinstance(self.phase, Paused)

    @property
    def is_suspended(self) -> bool:
        """Whether its GPU memory is in host RAM, or on its way there or back."""
        return isinstance(self.phase, Suspended)

    @property
    def is_stopped(self) -> bool:
        """Whether its time limit waits."""
        return isinstance(self.phase, (Paused, Suspended))

    @property
    def end_reason(self) -> str | None:
        """Why Stoker ends it; None if it does not."""
        return None if self.end_request is None else self.end_request.reason

    @property
    def ending(self) -> Ending | None:
        """How Stoker ends it; None if it does not."""
        return None if self.end_request is None else self.end_request.ending

    @property
    def is_preempted(self) -> bool:
        """Whether its job waits again after its end."""
        return self.end_request is not None and self.end_request.ending.is_preemption

    @property
    def finishes_alone(self) -> bool:
        """Whether its node lets it run to its end without the head (--on-cut finish)."""
        return self.entry.request.options.on_cut == "finish"

    @property
    def label(self) -> str:
        """Where it runs, as users see it: empty for a job without GPU on this machine."""
        return label_of(self.slots, self.node)

    @property
    def where(self) -> str:
        """The node it runs on; empty for this machine if that has no name."""
        return self.slots[0].node if self.slots else self.node

    @property
    def gpus(self) -> list[str]:
        """The GPUs it was given."""
        return [gpu for slot in self.slots for gpu in slot.gpus]


def label_of(slots: Collection[Slot], node: str = "") -> str:
    """Join the labels of slots; without slots, name only the node."""
    if not slots:
        return f"{node}/" if node else ""
    return ",".join([slot.label for slot in slots])
