"""The verbs: one module for each, named as on the command line. This is the list of all routes."""

from __future__ import annotations

from typing import Any

from stoker.api.endpoint import Endpoint
from stoker.api.routes import (
    add,
    config,
    events,
    kill,
    log,
    ls,
    openapi,
    retry,
    rm,
    show,
    status,
    stop,
    sweep,
    wait,
)

ENDPOINTS: tuple[Endpoint[Any, Any], ...] = (
    add.ADD,
    ls.LS,
    show.SHOW,
    log.LOG,
    kill.KILL,
    rm.RM,
    retry.RETRY,
    wait.WAIT,
    sweep.SWEEP,
    status.STATUS,
    config.READ,
    config.CHANGE,
    events.EVENTS,
    stop.STOP,
    openapi.OPENAPI,
)
