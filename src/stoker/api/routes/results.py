"""GET /v1/results, /v1/curves and /v1/export."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, Media
from stoker.api.stream import Chunks, Stream

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


class ResultsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sweep, by its name and the folder it was submitted from."""

    name: wire.Name
    cwd: str


class CurveQuery(ResultsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sweep, and which metric of its runs."""

    metric: wire.Name


async def results(context: QueueContext, query: ResultsQuery, _body: None) -> msgspec.Raw:
    """Tell what came of a sweep: its runs with their parameters and the metrics reported last."""
    return msgspec.Raw(await context.worker_tasks.send("results", query))


async def curves(context: QueueContext, query: CurveQuery, _body: None) -> msgspec.Raw:
    """Tell what the newest runs of a sweep have reported of a metric, over their steps."""
    return msgspec.Raw(await context.worker_tasks.send("curves", query))


async def export(context: QueueContext, query: ResultsQuery, _body: None) -> Stream:
    """Give all runs of a sweep as csv, with all parameters and metrics."""
    return Stream(_once(await context.worker_tasks.send("export", query)), Media.BYTES.value)


async def _once(data: bytes) -> Chunks:
    yield data


RESULTS = Endpoint(
    method="GET",
    path="/v1/results",
    call=results,
    query=ResultsQuery,
    body=type(None),
    answer=wire.SweepResults,
    is_worker_task=True,
    refusals=(404, 409),
    lets_in=OWNER,
)

CURVES = Endpoint(
    method="GET",
    path="/v1/curves",
    call=curves,
    query=CurveQuery,
    body=type(None),
    answer=list[wire.CurvePoints],
    is_worker_task=True,
    refusals=(404, 409),
    lets_in=OWNER,
)

EXPORT = Endpoint(
    method="GET",
    path="/v1/export",
    call=export,
    query=ResultsQuery,
    body=type(None),
    answer=bytes,
    media=Media.BYTES,
    refusals=(404, 409),
    lets_in=OWNER,
)
