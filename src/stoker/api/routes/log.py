"""GET /v1/log: streams the output of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec

from stoker.api.endpoint import Endpoint, Media
from stoker.api.log_follow import follow_log, read_log
from stoker.api.log_tail import offset_of_last
from stoker.api.stream import Chunks, Stream
from stoker.errors import UsageError
from stoker.service import log as service
from stoker.service.blocking_calls import call_in_thread

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext

_MAX_LINES = 1_000_000
_MAX_OFFSET = 2**62

Count = Annotated[int, msgspec.Meta(ge=0, le=_MAX_LINES)]


class LogQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects the log of a job (`daemon`: the daemon's own) and attempt (default: the last), and its part.

    `tail` is a number of lines at the end, `offset` a number of bytes to skip; at most one of them is
    allowed. With `follow` the answer continues until this attempt has ended.
    """

    job: str
    attempt: Annotated[int, msgspec.Meta(ge=1, le=2**31)] | None = None
    tail: Count | None = None
    offset: Annotated[int, msgspec.Meta(ge=0, le=_MAX_OFFSET)] | None = None
    follow: bool = False


@dataclass(frozen=True)
class OpenLog:
    """The output of one attempt, from an offset on."""

    job: int
    attempt: int
    offset: int
    chunks: Chunks


async def open_log(context: QueueContext, query: LogQuery, *, follow: bool) -> OpenLog:
    """Find the log that a query selects, and the offset to begin at."""
    if query.tail is not None and query.offset is not None:
        raise UsageError("give 'tail' or 'offset', not both")
    found = service.find(context, query.job, query.attempt)
    offset = query.offset or 0
    if query.tail is not None:
        # In a thread: these lines may be a gigabyte.
        offset = await call_in_thread(offset_of_last, found.path, query.tail)
    is_local = found.path.startswith(context.home + "/")
    if follow:
        chunks = follow_log(context.events, found, offset, is_local=is_local)
    else:
        chunks = read_log(found, offset, is_local=is_local)
    return OpenLog(found.id, found.attempt, offset, chunks)


async def log(context: QueueContext, query: LogQuery) -> Stream:
    """Stream the output of a job, byte for byte as in its log."""
    found = await open_log(context, query, follow=query.follow)
    headers = {
        "stoker-job": str(found.job),
        "stoker-attempt": str(found.attempt),
        "stoker-offset": str(found.offset),
    }
    return Stream(found.chunks, Media.BYTES.value, headers)


ENDPOINT = Endpoint(
    "GET",
    "/v1/log",
    log,
    bytes,
    LogQuery,
    media=Media.BYTES,
    refusals=(404, 409),
    answer_headers={
        "stoker-job": "the id of the job",
        "stoker-attempt": "the number of the attempt",
        "stoker-offset": "the offset of the first byte in the log",
    },
)
