"""Reports of the bridge about nodes: one line of JSON each."""

from __future__ import annotations

import msgspec

from stoker.cluster.protocol import FIRST
from stoker.core.gpu_links import Link
from stoker.core.usage import Look


class NodeSlot(msgspec.Struct, frozen=True):
    """A slot of a node, with the node's own names of its GPUs."""

    gpus: tuple[str, ...]
    keys: tuple[str, ...]


class NodeGpu(msgspec.Struct, frozen=True):
    """Name and memory of a GPU of a node."""

    name: str
    total_bytes: int


class Introduction(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a node, as its agent reports them. The id lasts as long as the node's home."""

    id: str
    name: str
    version: str
    protocol: int = FIRST  # of the messages between head and nodes
    address: str = ""
    labels: dict[str, str] = {}
    slots: tuple[NodeSlot, ...] = ()
    gpus: dict[str, NodeGpu] = {}
    cpus: int | None = None
    mem_bytes: int | None = None
    links: tuple[
        tuple[str, str, Link], ...
    ] = ()  # of pairs of GPUs, as far as the driver knows them
    is_pilot: bool = False  # it joined in the foreground of a batch script, and never comes back


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a GPU beyond the figures of a Look."""

    closed: str | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    lost: bool = False
    xid: int | None = None
    held_by: str | None = None


class GpuSample(msgspec.Struct, frozen=True):
    """The last sample of all GPUs of a node."""

    look: Look
    states: dict[str, GpuState]


class ClockOffset(msgspec.Struct, frozen=True):
    """Seconds by which the head's clocks are ahead of a node's: the boot clock and the time of day.

    The time of day is in whole seconds, because a message takes a moment.
    """

    since_boot_s: float = 0.0
    of_day_s: int = 0


class NodeReport(msgspec.Struct, frozen=True):
    """Base class of all reports about nodes."""


class Joined(NodeReport, frozen=True, tag="joined"):
    """A node answers and can run jobs."""

    facts: Introduction
    offset: ClockOffset = msgspec.field(default=ClockOffset(), name="ahead")


class Notice(NodeReport, frozen=True, tag="told"):
    """A text for the user."""

    text: str


class NodeChange(NodeReport, frozen=True):
    """Base class of the reports about one known node."""

    node: str


class Reachable(NodeChange, frozen=True):
    """A node answers. The executor waits for `connect`; then the node reports its attempts and has joined."""


class Away(NodeChange, frozen=True, tag="away"):
    """A node does not answer. Its jobs may go on."""

    reason: str


class LeaseExpired(NodeChange, frozen=True, tag="parted"):
    """No job of this queue can still be running on a node that does not answer."""

    reason: str


class Leaving(NodeChange, frozen=True, tag="leaving"):
    """A node leaves the cluster: no job may start there, and its jobs are being ended."""


class Left(NodeChange, frozen=True, tag="left"):
    """A node has left the cluster."""


class GpusSampled(NodeChange, frozen=True, tag="sighted"):
    """State of a node's GPUs; None if its driver does not answer."""

    sample: GpuSample | None = msgspec.field(name="sight")


NODE_REPORTS: msgspec.json.Decoder[NodeReport] = msgspec.json.Decoder(
    Joined | Notice | Away | LeaseExpired | Leaving | Left | GpusSampled
)
