"""What a head learns of the other machines of its cluster."""

from __future__ import annotations

import msgspec

from stoker.core.usage import Look


class NodeSlot(msgspec.Struct, frozen=True):
    """GPUs of a node that one job at a time gets, as the node itself calls them."""

    gpus: tuple[str, ...]
    keys: tuple[str, ...]


class NodeGpu(msgspec.Struct, frozen=True):
    """What kind of GPU a node has under a key."""

    name: str
    total_bytes: int


class Introduction(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it introduces itself. Its id is its own, for as long as its home lasts."""

    id: str
    name: str
    version: str
    address: str = ""
    labels: dict[str, str] = {}
    slots: tuple[NodeSlot, ...] = ()
    gpus: dict[str, NodeGpu] = {}


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """What the figures of a look do not tell of a GPU."""

    closed: str | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    lost: bool = False
    xid: int | None = None


class Sight(msgspec.Struct, frozen=True):
    """What a node's sampler has seen last."""

    look: Look
    states: dict[str, GpuState]


class Ahead(msgspec.Struct, frozen=True):
    """By how many seconds the clocks of the head are ahead of a node's.

    That of the day in whole ones: less is no more than what a message takes.
    """

    since_boot_s: float = 0.0
    of_day_s: int = 0


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """A node is there, and can be spoken with."""

    facts: Introduction
    ahead: Ahead = Ahead()


class Away(msgspec.Struct, frozen=True, tag="away"):
    """A node does not answer; what runs there may go on."""

    node: str
    reason: str


class Parted(msgspec.Struct, frozen=True, tag="parted"):
    """Nothing that was started on a node for this queue can be running there any more."""

    node: str
    reason: str


class Leaving(msgspec.Struct, frozen=True, tag="leaving"):
    """A node takes its leave: nothing more may start there, and what runs is being ended."""

    node: str


class Left(msgspec.Struct, frozen=True, tag="left"):
    """A node has taken its leave, and is not expected back."""

    node: str


class Sighted(msgspec.Struct, frozen=True, tag="sighted"):
    """How a node's GPUs are; None where it cannot see, for its driver does not answer."""

    node: str
    sight: Sight | None


class Told(msgspec.Struct, frozen=True, tag="told"):
    """Something that people should read."""

    text: str


News = Joined | Away | Parted | Leaving | Left | Sighted | Told


class Known(msgspec.Struct, frozen=True, tag="known"):
    """What the daemon tells first: the nodes on record, and for how long one may be without word."""

    nodes: tuple[tuple[str, str], ...]  # id and name
    lease_s: float


class Watch(msgspec.Struct, frozen=True, tag="watch"):
    """Whether anybody wants to know how GPUs are."""

    wanted: bool


class Stream(msgspec.Struct, frozen=True, tag="stream"):
    """What follows on this connection goes to the supervisor of a node, and back."""

    node: str


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """A node is not expected back."""

    node: str


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Go; nodes let what runs go on for as long as their leases last."""


Order = Known | Watch | Stream | Forget | Stop
