"""Requests of the bridge to an agent, and the agent's replies.

Ray carries them as bytes, in MessagePack. A request's type names the type of its reply. If the agent raises
an error, the bridge gets that error from Ray instead of a reply.
"""

from __future__ import annotations

import enum
from typing import Any, Generic, TypeVar, cast, get_args

import msgspec

from stoker.bridge.log_forwarder import LogPiece
from stoker.executors.node_reports import GpuSample, Introduction
from stoker.staging.node_cache import CollectedResults, Piece, WorkingCopy

ReplyT = TypeVar("ReplyT")


class AgentRequest(msgspec.Struct, Generic[ReplyT], frozen=True, tag=True):
    """Base class of the requests; its parameter is the type of the reply."""


class Departure(str, enum.Enum):
    """Whether a node leaves the cluster."""

    NONE = "none"
    LEAVING = "leaving"
    LEFT = "left"


class HeartbeatReply(msgspec.Struct, frozen=True):
    """The node's boot clock and time of day, its GPUs if they can be seen, and whether it leaves."""

    stamp_s: float
    time_s: float
    sample: GpuSample | None = None
    departure: Departure = Departure.NONE


class StreamOutput(msgspec.Struct, frozen=True):
    """Pieces of logs, which must be written first, and the supervisor's reports, one line each."""

    pieces: list[LogPiece]
    reports: list[bytes]


class CacheFailure(msgspec.Struct, frozen=True, tag=True):
    """The node cache cannot do what was asked, for this reason. `errno` is 0 if the system has none."""

    reason: str
    errno: int = 0


class Introduce(AgentRequest[Introduction], frozen=True):
    """Ask which node this is. All versions of Stoker understand this request and its reply."""


class Heartbeat(AgentRequest[HeartbeatReply], frozen=True):
    """Renew the lease. `echo_s` is the stamp of the last reply, None at first.

    An echoed stamp proves to the agent that the bridge has heard from it since then.
    """

    echo_s: float | None
    lease_s: float
    watch_gpus: bool


class OpenStream(AgentRequest[str | None], frozen=True):
    """Connect a new stream to the node's supervisor. The stream before it ends.

    The reply is the reason why the node has no supervisor; None if it has one.
    """

    stream: str


class WriteOrders(AgentRequest[bool], frozen=True):
    """Pass lines of NODE_ORDERS on to the supervisor. The reply is False if the stream has ended."""

    stream: str
    lines: list[bytes]


class ReadReports(AgentRequest[StreamOutput | None], frozen=True):
    """Wait for output of a stream, and confirm the output read before. None: the stream has ended."""

    stream: str


class CloseStream(AgentRequest[None], frozen=True):
    """End a stream. Jobs go on."""

    stream: str


class CacheRequest(AgentRequest[ReplyT], frozen=True):
    """Base class of the calls of the node's NodeCache: one for each method, with its arguments."""


class FindMissing(CacheRequest[list[str] | CacheFailure], frozen=True):
    """NodeCache.missing."""

    manifest: bytes


class PutPieces(CacheRequest[list[int] | CacheFailure], frozen=True):
    """NodeCache.put."""

    pieces: list[Piece]


class LayOut(CacheRequest[WorkingCopy | CacheFailure], frozen=True):
    """NodeCache.lay_out."""

    manifest: bytes
    name: str


class Collect(CacheRequest[CollectedResults | CacheFailure], frozen=True):
    """NodeCache.collect."""

    name: str
    results: bytes
    limit_bytes: int


class Fetch(CacheRequest[bytes | CacheFailure | None], frozen=True):
    """NodeCache.fetch."""

    name: str
    digest: str
    offset: int


class DeleteCopy(CacheRequest[CacheFailure | None], frozen=True):
    """NodeCache.done."""

    name: str


class CheckpointRequest(CacheRequest[ReplyT], frozen=True):
    """Base class of the calls of the node's NodeCheckpoints: one for each method, with its arguments."""


class LayOutCheckpoints(CheckpointRequest[WorkingCopy | CacheFailure], frozen=True):
    """NodeCheckpoints.lay_out."""

    manifest: bytes
    job: int


class CollectCheckpoints(CheckpointRequest[CollectedResults | CacheFailure], frozen=True):
    """NodeCheckpoints.collect."""

    job: int
    limit_bytes: int


class FetchCheckpoints(CheckpointRequest[bytes | CacheFailure | None], frozen=True):
    """NodeCheckpoints.fetch."""

    job: int
    digest: str
    offset: int


class DeleteCheckpoints(CheckpointRequest[CacheFailure | None], frozen=True):
    """NodeCheckpoints.delete."""

    job: int


_CacheCall = FindMissing | PutPieces | LayOut | Collect | Fetch | DeleteCopy
_CheckpointCall = LayOutCheckpoints | CollectCheckpoints | FetchCheckpoints | DeleteCheckpoints
_requests: msgspec.msgpack.Decoder[AgentRequest[Any]] = msgspec.msgpack.Decoder(
    Introduce
    | Heartbeat
    | OpenStream
    | WriteOrders
    | ReadReports
    | CloseStream
    | _CacheCall
    | _CheckpointCall
)
encode = msgspec.msgpack.encode
decode_request = _requests.decode


def decode_reply(data: bytes, request: AgentRequest[ReplyT]) -> ReplyT:
    """Decode the reply to a request; raise msgspec.DecodeError if it has another type."""
    (base,) = type(request).__orig_bases__  # type: ignore[attr-defined]
    return cast(ReplyT, msgspec.msgpack.decode(data, type=get_args(base)[0]))
