"""GET /v1/log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec

from stoker.api.blocking_calls import call_in_thread
from stoker.api.endpoint import OWNER, Endpoint, Media
from stoker.api.log_follow import follow_log, read_log
from stoker.api.log_tail import offset_of_last
from stoker.api.stream import Chunks, Stream
from stoker.errors import UsageError
from stoker.service import log as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext

_MAX_LINES = 1_000_000
_MAX_OFFSET = 2**62

Count = Annotated[int, msgspec.Meta(ge=0, le=_MAX_LINES)]


class LogQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose log (`daemon` for the daemon's own), which attempt's (the last one's), from where on.

    `tail` is a number of lines at its end, `offset` a number of bytes to leave out at its beginning;
    at most one of them. With `follow` the answer goes on until this attempt can write no more.
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
    """Find what a query means, and where in it to begin."""
    if query.tail is not None and query.offset is not None:
        raise UsageError("give 'tail' or 'offset', not both")
    found = service.find(context, query.job, query.attempt)
    offset = query.offset or 0
    if query.tail is not None:
        # In a thread: the lines asked for may be a gigabyte.
        offset = await call_in_thread(offset_of_last, found.path, query.tail)
    is_local = found.path.startswith(context.home + "/")
    if follow:
        chunks = follow_log(context.events, found, offset, is_local=is_local)
    else:
        chunks = read_log(found, offset, is_local=is_local)
    return OpenLog(found.id, found.attempt, offset, chunks)


async def log(context: QueueContext, query: LogQuery, _body: None) -> Stream:
    """Give the output of a job as it is in its log, byte for byte."""
    found = await open_log(context, query, follow=query.follow)
    headers = {
        "stoker-job": str(found.job),
        "stoker-attempt": str(found.attempt),
        "stoker-offset": str(found.offset),
    }
    return Stream(found.chunks, Media.BYTES.value, headers)


LOG = Endpoint(
    method="GET",
    path="/v1/log",
    call=log,
    query=LogQuery,
    body=type(None),
    answer=bytes,
    media=Media.BYTES,
    refusals=(404, 409),
    lets_in=OWNER,
    answer_headers={
        "stoker-job": "the job's id",
        "stoker-attempt": "whose output it is, of the job's attempts",
        "stoker-offset": "where in the log it begins, in bytes",
    },
)
