"""Table of all endpoints. Most call a function of the service package; `routes/` has the others.

The docstring of each function is the endpoint's description in the OpenAPI document.
"""

from __future__ import annotations

import functools
from typing import Any

from stoker import wire
from stoker.api.endpoint import Endpoint, Media, NoQuery
from stoker.api.openapi import make_document
from stoker.api.routes import events, gpupeasy, log, wait
from stoker.core.lifecycle import State
from stoker.service import sweep
from stoker.service.add import add
from stoker.service.allocations import (
    add_allocation_rule,
    change_allocation_rule,
    read_allocations,
)
from stoker.service.batch import batch
from stoker.service.config import change_config, read_config
from stoker.service.counts import counts
from stoker.service.gpus import change_gpus, read_gpus
from stoker.service.history import history
from stoker.service.hold import hold, release
from stoker.service.kill import kill
from stoker.service.ls import ls
from stoker.service.metrics import metrics
from stoker.service.move import move
from stoker.service.nodes import change_nodes, read_nodes
from stoker.service.pause import pause, resume
from stoker.service.preempt import preempt
from stoker.service.prune import prune
from stoker.service.reserve import end_reservation, read_reservations, reserve
from stoker.service.retry import retry
from stoker.service.rm import rm
from stoker.service.search import search
from stoker.service.set import set_
from stoker.service.show import show
from stoker.service.start import start
from stoker.service.status import status
from stoker.service.stop import stop
from stoker.service.suspend import suspend
from stoker.service.timeline import timeline
from stoker.service.usage import usage
from stoker.service.web import web
from stoker.service.what_if import what_if
from stoker.service.why import why


def openapi(_context: object) -> dict[str, Any]:
    """Return this interface as an OpenAPI document."""
    return _document()


@functools.cache
def _document() -> dict[str, Any]:
    return make_document(ENDPOINTS)


def _get(path: str, call: Any, answer: Any, query: Any = NoQuery, **more: Any) -> Endpoint:
    return Endpoint("GET", path, call, answer, query, **more)


def _post(path: str, call: Any, body: Any, answer: Any = wire.Changed, **more: Any) -> Endpoint:
    return Endpoint("POST", path, call, answer, body=body, **{"refusals": _NAMED, **more})


METRICS_PATH = "/metrics"
_NAMED = (404, 409)  # the named object may not exist, or its state may not allow the request
_TASK: dict[str, Any] = {"refusals": _NAMED, "is_worker_task": True}

ENDPOINTS: tuple[Endpoint, ...] = (
    _post("/v1/add", add, wire.Submission, wire.Added, status=201),
    _post("/v1/batch", batch, wire.BatchText, wire.BatchJobs, refusals=()),
    _get("/v1/ls", ls, wire.Page, wire.LsQuery, refusals=_NAMED),
    _get("/v1/show", show, wire.JobDetail, wire.JobQuery, refusals=_NAMED),
    _get("/v1/why", why, wire.Why, wire.JobQuery, refusals=_NAMED),
    log.ENDPOINT,
    _post("/v1/kill", kill, wire.Kill),
    _post("/v1/rm", rm, wire.Remove),
    _post("/v1/retry", retry, wire.Retry),
    _post("/v1/hold", hold, wire.Hold),
    _post("/v1/release", release, wire.Release),
    _post("/v1/pause", pause, wire.Pause),
    _post("/v1/resume", resume, wire.Resume),
    _post("/v1/suspend", suspend, wire.Suspend),
    _post("/v1/start", start, wire.Start),
    _post("/v1/preempt", preempt, wire.Preempt),
    _post("/v1/move", move, wire.Move, wire.Moved),
    _post("/v1/set", set_, wire.Set),
    _get("/v1/gpus", read_gpus, list[wire.GpuInfo], wire.GpusQuery, period_s=1.0),
    _post("/v1/gpus", change_gpus, wire.GpuOrder, wire.GpuChange),
    _get("/v1/reserve", read_reservations, list[wire.UserReservationInfo], refusals=(409,)),
    _post("/v1/reserve", reserve, wire.Reserve, wire.UserReservationInfo, refusals=(409,)),
    _post("/v1/reserve/end", end_reservation, wire.EndReservation, wire.UserReservationInfo),
    _get("/v1/nodes", read_nodes, list[wire.NodeInfo]),
    _post("/v1/nodes", change_nodes, wire.NodeOrder, list[wire.NodeInfo]),
    _get("/v1/allocations", read_allocations, list[wire.AllocationRule]),
    _post(
        "/v1/allocations",
        add_allocation_rule,
        wire.NewAllocationRule,
        wire.AllocationRule,
        status=201,
        refusals=(409,),
    ),
    _post("/v1/allocation", change_allocation_rule, wire.AllocationOrder, wire.AllocationRule),
    _get("/v1/history", history, wire.History, wire.JobQuery, refusals=_NAMED, period_s=2.0),
    _get("/v1/timeline", timeline, wire.Timeline, wire.TimelineQuery, period_s=5.0),
    _get("/v1/counts", counts, dict[State, int], wire.CountsQuery),
    wait.ENDPOINT,
    _get("/v1/sweep", sweep.sweep, wire.SweepPage, wire.SweepQuery),
    _post("/v1/sweep", sweep.queue, wire.SweepOrder, wire.SweepAdded, status=201),
    _post("/v1/search", search, wire.SearchOrder, wire.SearchBegun, status=201),
    _post("/v1/prune", prune, wire.Prune),
    _get("/v1/sweeps", sweep.sweeps, list[wire.SweepInfo], wire.SweepsQuery),
    _post("/v1/forecast", what_if, wire.WhatIf, wire.Prediction, refusals=()),
    _post("/v1/plan", sweep.plan, wire.SweepDraft, wire.SweepPlan),
    _get("/v1/results", sweep.results, wire.SweepResults, wire.ResultsQuery, **_TASK),
    _get("/v1/curves", sweep.curves, list[wire.CurvePoints], wire.CurveQuery, **_TASK),
    _get("/v1/export", sweep.export, bytes, wire.ResultsQuery, media=Media.BYTES, **_TASK),
    _get("/v1/status", status, wire.Status),
    _get("/v1/usage", usage, wire.Usage),
    _get("/v1/config", read_config, list[wire.Setting]),
    Endpoint(
        "PATCH", "/v1/config", change_config, wire.Setting, body=wire.NewSetting, refusals=_NAMED
    ),
    events.ENDPOINT,
    _post("/v1/stop", stop, wire.Stop, None, status=204, refusals=()),
    _post("/v1/web", web, wire.WebOrder, wire.WebPlace | None, refusals=(409,)),
    _get("/v1/openapi.json", openapi, dict[str, Any]),
    _get(METRICS_PATH, metrics, bytes, media=Media.METRICS),
    *gpupeasy.ENDPOINTS,
)
