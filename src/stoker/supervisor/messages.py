"""Orders of a client to its supervisor: one type for each.

On the connection an order is a JSON array: its word from `ORDERS`, then its fields in the order given here
(`framing.py`). The supervisor answers with reports (`reports.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

PROTOCOL = 1
"""Version of the protocol; increases with each change that the other side would not understand."""


class DefineContext(NamedTuple):
    """Define environment, folder and shell for later starts, which refer to this number."""

    number: int
    env: dict[str, str]
    cwd: str
    shell: str


class ForgetContext(NamedTuple):
    """Forget a context; attempts that wait in it keep it."""

    number: int


class DefineSlot(NamedTuple):
    """Define a set of GPUs. With `parts` it is made of other slots; with an empty list it needs no GPU."""

    number: int
    env: dict[str, str]
    keys: Sequence[str]
    parts: Sequence[int] | None = None


class HoldSlot(NamedTuple):
    """Take the leases of a slot: all of them or, without `gather`, none."""

    number: int
    gather: bool = False


class ReleaseSlot(NamedTuple):
    """Release the named leases of a slot."""

    number: int
    keys: Sequence[str]


class ReserveLeases(NamedTuple):
    """Keep these leases until their times of the boot clock when the client is gone, and no other leases."""

    until_s: dict[str, float]


class StartAttempt(NamedTuple):
    """Start an attempt when the earlier attempts on its slot have ended.

    `warm` has the fields of a ForkRequest. `log_offset` is where this attempt's output begins in a log on
    another machine; the supervisor itself appends to its log. With more RAM than `mem_bytes` the attempt is
    killed. It gets so many `cpus` at most, where the supervisor can limit that. 0 is no limit.
    """

    key: str
    context: int
    slot: int
    argv: list[str]
    log: str | None
    env: dict[str, str] | None = None
    warm: Sequence[Any] | None = None
    log_offset: int = 0
    mem_bytes: int = 0
    cpus: int = 0


class OfferSlots(NamedTuple):
    """Let these slots, and no others, take attempts launched ahead. Each has a number and a label."""

    slots: Sequence[tuple[int, str]]


class AheadOrder(NamedTuple):
    """A start without a slot; its ticket is its position in the queue of all supervisors."""

    ticket: int
    key: str
    context: int
    argv: list[str]
    log: str | None
    env: dict[str, str] | None = None
    warm: Sequence[Any] | None = None


class StartAhead(NamedTuple):
    """Queue attempts without a slot, in their order; `first` is the lowest ticket that is still open."""

    orders: Sequence[AheadOrder]
    first: int


class RevokeAttempt(NamedTuple):
    """Take an attempt back, unless it has started."""

    key: str


class MoveAttempt(NamedTuple):
    """Let a running attempt leave its slot (None), or occupy this one: its GPU memory has moved."""

    key: str
    slot: int | None


class LimitAttempt(NamedTuple):
    """Kill a running attempt from now on if it uses more RAM than this; 0 is no limit."""

    key: str
    mem_bytes: int


class SignalAttempt(NamedTuple):
    """Signal an attempt's whole tree once. With a grace, kill what is left when the grace is over."""

    key: str
    signum: int
    grace_s: float | None = None


class SignalMain(NamedTuple):
    """As SignalAttempt, but only the attempt's main process gets the signal (`Snapshot.main_of`)."""

    key: str
    signum: int
    grace_s: float | None = None


class KillAttempt(NamedTuple):
    """Kill an attempt's whole tree until nothing of it is left."""

    key: str


class CutAttempt(NamedTuple):
    """Kill an attempt because of its node, and report it as lost for this reason."""

    key: str
    reason: str


class Finish(NamedTuple):
    """No more attempts will come: report when the last process has ended, or its grace is over."""


class OpenJournal(NamedTuple):
    """Use this name in cookies, and this journal. The first order to a supervisor of a foreground run."""

    name: str
    journal: str


class Sync(NamedTuple):
    """Forget the orders of earlier clients, and report all attempts. First order to a daemon's supervisor."""


class Acknowledge(NamedTuple):
    """Forget these attempts: the client has recorded their ends."""

    keys: Sequence[str]


class Disown(NamedTuple):
    """Keep the GPUs of these attempts while they run: the client has no record of them."""

    keys: Sequence[str]


class StopSupervisor(NamedTuple):
    """End: with `kill` after killing every tree, else only if nothing runs. The same in every version."""

    kill: bool


Order = (
    DefineContext
    | ForgetContext
    | DefineSlot
    | HoldSlot
    | ReleaseSlot
    | ReserveLeases
    | StartAttempt
    | OfferSlots
    | StartAhead
    | RevokeAttempt
    | MoveAttempt
    | LimitAttempt
    | SignalAttempt
    | SignalMain
    | KillAttempt
    | CutAttempt
    | Finish
    | OpenJournal
    | Sync
    | Acknowledge
    | Disown
    | StopSupervisor
)
ORDERS: Mapping[str, type[Order]] = {
    "context": DefineContext,
    "forget": ForgetContext,
    "place": DefineSlot,
    "hold": HoldSlot,
    "release": ReleaseSlot,
    "reserve": ReserveLeases,
    "start": StartAttempt,
    "offer": OfferSlots,
    "ahead": StartAhead,
    "revoke": RevokeAttempt,
    "move": MoveAttempt,
    "limit": LimitAttempt,
    "signal": SignalAttempt,
    "signal_main": SignalMain,
    "kill": KillAttempt,
    "cut": CutAttempt,
    "finish": Finish,
    "open": OpenJournal,
    "sync": Sync,
    "ack": Acknowledge,
    "disown": Disown,
    "stop": StopSupervisor,
}
"""The types of orders by their words on the connection."""
