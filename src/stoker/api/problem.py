"""Error responses: every error becomes a problem document (RFC 9457)."""

from __future__ import annotations

import http
import logging
from collections.abc import Mapping

import msgspec

from stoker import wire
from stoker.api.response import Response
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
    """A refused request, with its HTTP status."""

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
    """Return the problem document of a refusal as a response."""
    title = http.HTTPStatus(status).phrase
    document = wire.Problem(title=title, status=status, detail=detail, field=field)
    return Response(msgspec.json.encode(document), status, headers=headers, media=MEDIA)


def answer_error(error: Exception) -> Response:
    """Return the response for an error. An unexpected error is logged, and its text is not sent."""
    if isinstance(error, RefusedError):
        return problem(error.status, error.detail, error.headers, error.field)
    if isinstance(error, StokerError):
        status = next(status for kind, status in _STATUS if isinstance(error, kind))
        return problem(status, str(error), field=error.field)
    log_error(error)
    return problem(500, f"an error inside the daemon ({type(error).__name__}): see its log")


def log_error(error: Exception) -> None:
    """Log an unexpected error. Requests themselves are never logged."""
    _log.error("a request failed", exc_info=error)
