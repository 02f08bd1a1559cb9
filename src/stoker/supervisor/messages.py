"""The orders that a client sends to a supervisor: one type for each.

On the connection an order is a JSON array: its word from `ORDERS`, then its fields in the order given here
(`framing.py`). What the supervisor answers is in `reports.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

PROTOCOL = 1
"""The version of the protocol: one more with every change that the other side would not understand."""


class DefineContext(NamedTuple):
    """Environment, folder and shell that later starts name by this number."""

    number: int
    env: dict[str, str]
    cwd: str
    shell: str


class ForgetContext(NamedTuple):
    """Forget a context; attempts that wait to be started in it keep it."""

    number: int


class DefinePlace(NamedTuple):
    """A set of GPUs. With `parts` it is made of other places; with an empty list it needs no GPU."""

    number: int
    env: dict[str, str]
    keys: Sequence[str]
    parts: Sequence[int] | None = None


class HoldPlace(NamedTuple):
    """Take the leases of a place: all of them or none."""

    number: int


class ReleasePlace(NamedTuple):
    """Give back the named leases of a place."""

    number: int
    keys: Sequence[str]


class StartAttempt(NamedTuple):
    """Start an attempt: now, or when those before it on its place have ended.

    `warm` has the fields of a ForkRequest. `log_offset` is where this attempt's output begins in a log on
    another machine; the supervisor itself appends to its log.
    """

    key: str
    context: int
    place: int
    argv: list[str]
    log: str | None
    env: dict[str, str] | None = None
    warm: Sequence[Any] | None = None
    log_offset: int = 0


class OfferPlaces(NamedTuple):
    """Let these places, and no others, take attempts from the line. Each has a number and a label."""

    places: Sequence[tuple[int, str]]


class AheadOrder(NamedTuple):
    """A start that is not bound to a place; its ticket says where it is in the line of all supervisors."""

    ticket: int
    key: str
    context: int
    argv: list[str]
    log: str | None
    env: dict[str, str] | None = None
    warm: Sequence[Any] | None = None


class StartAhead(NamedTuple):
    """Put attempts into the line, in their order; `first` is the lowest ticket that is still open."""

    orders: Sequence[AheadOrder]
    first: int


class RevokeAttempt(NamedTuple):
    """Take an attempt back, unless it has started."""

    key: str


class SignalAttempt(NamedTuple):
    """Signal an attempt's whole tree once; with a grace, kill what is left of it when that is over."""

    key: str
    signum: int
    grace_s: float | None = None


class KillAttempt(NamedTuple):
    """Kill an attempt's whole tree until nothing of it is left."""

    key: str


class CutAttempt(NamedTuple):
    """Kill an attempt for its machine's sake, and report it as lost for this reason."""

    key: str
    reason: str


class Finish(NamedTuple):
    """No more attempts will come: report when the last process has ended, or its grace is over."""


class OpenJournal(NamedTuple):
    """Sign cookies with this name, and keep this journal. To a supervisor in the foreground, first of all."""

    name: str
    journal: str


class Sync(NamedTuple):
    """Forget what earlier clients ordered, and report all that is known. To a daemon's, first of all."""


class Acknowledge(NamedTuple):
    """The ends of these attempts are on record, and can be forgotten."""

    keys: Sequence[str]


class Disown(NamedTuple):
    """The client has no record of these attempts: nobody gets their GPUs while they run."""

    keys: Sequence[str]


class StopSupervisor(NamedTuple):
    """End: with `kill` after every tree is killed, else only if nothing runs. The same in every version."""

    kill: bool


Order = (
    DefineContext
    | ForgetContext
    | DefinePlace
    | HoldPlace
    | ReleasePlace
    | StartAttempt
    | OfferPlaces
    | StartAhead
    | RevokeAttempt
    | SignalAttempt
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
    "place": DefinePlace,
    "hold": HoldPlace,
    "release": ReleasePlace,
    "start": StartAttempt,
    "offer": OfferPlaces,
    "ahead": StartAhead,
    "revoke": RevokeAttempt,
    "signal": SignalAttempt,
    "kill": KillAttempt,
    "cut": CutAttempt,
    "finish": Finish,
    "open": OpenJournal,
    "sync": Sync,
    "ack": Acknowledge,
    "disown": Disown,
    "stop": StopSupervisor,
}
"""By the word that an order has on the connection."""
