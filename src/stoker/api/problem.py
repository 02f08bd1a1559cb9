"""Refusals: every error leaves as a problem document (RFC 9457) with what to do about it."""

from __future__ import annotations

import http
import logging
from collections.abc import Mapping

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from stoker import wire
from stoker.errors import ConflictError, NotFoundError, StokerError, UsageError

MEDIA = "application/problem+json"

_log = logging.getLogger("stoker.api")
_STATUS: tuple[tuple[type[StokerError], int], ...] = (
    (UsageError, 400),
    (NotFoundError, 404),
    (ConflictError, 409),
    (StokerError, 503),
)


class RefusedError(Exception):
    """A request that is not taken, with the status that says why."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        hang_up: bool = False,
        headers: Mapping[str, str] = {},
        field: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.headers = {**headers, "connection": "close"} if hang_up else dict(headers)


def problem(
    status: int,
    detail: str,
    headers: Mapping[str, str] | None = None,
    field: str | None = None,
) -> Response:
    """The document for a refusal."""
    title = http.HTTPStatus(status).phrase
    document = wire.Problem(title=title, status=status, detail=detail, field=field)
    return Response(
        msgspec.json.encode(document), status, headers=dict(headers or {}), media_type=MEDIA
    )


def answer_error(error: Exception) -> Response:
    """The refusal that an error means; what nobody foresaw is logged and tells no secrets."""
    if isinstance(error, RefusedError):
        return problem(error.status, error.detail, error.headers, error.field)
    if isinstance(error, StokerError):
        status = next(status for kind, status in _STATUS if isinstance(error, kind))
        return problem(status, str(error), field=error.field)
    log_error(error)
    return problem(500, f"an error inside the daemon ({type(error).__name__}); its log says more")


def log_error(error: Exception) -> None:
    """Leave a trace of what nobody foresaw; requests themselves are never logged."""
    _log.error("a request failed", exc_info=error)


async def answer_http_exception(_request: Request, error: Exception) -> Response:
    """Starlette's own refusals: no such path, no such method."""
    assert isinstance(error, HTTPException)
    return problem(error.status_code, error.detail, error.headers)
