"""The verbs: one module for each, named as on the command line. This is the list of all routes."""

from __future__ import annotations

from typing import Any

from stoker.api.endpoint import Endpoint
from stoker.api.routes import (
    add,
    config,
    events,
    gpupeasy,
    gpus,
    hold,
    kill,
    log,
    ls,
    move,
    openapi,
    pause,
    preempt,
    release,
    resume,
    retry,
    rm,
    set,  # noqa: A004 - the verb's own name
    show,
    start,
    status,
    stop,
    sweep,
    usage,
    wait,
    why,
)

ENDPOINTS: tuple[Endpoint[Any, Any], ...] = (
    add.ADD,
    ls.LS,
    show.SHOW,
    why.WHY,
    log.LOG,
    kill.KILL,
    rm.RM,
    retry.RETRY,
    hold.HOLD,
    release.RELEASE,
    pause.PAUSE,
    resume.RESUME,
    start.START,
    preempt.PREEMPT,
    move.MOVE,
    set.SET,
    gpus.GPUS,
    wait.WAIT,
    sweep.SWEEP,
    status.STATUS,
    usage.USAGE,
    config.READ,
    config.CHANGE,
    events.EVENTS,
    stop.STOP,
    openapi.OPENAPI,
    *gpupeasy.ENDPOINTS,
)
