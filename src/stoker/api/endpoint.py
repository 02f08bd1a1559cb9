"""Description of an endpoint, from which routing, checks and the OpenAPI document are derived."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from stoker.core.exposition import MEDIA_TYPE

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext

VERSION = "v1"


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Media(str, enum.Enum):
    """Media type of an answer."""

    JSON = "application/json"
    LINES = "application/x-ndjson"
    BYTES = "application/octet-stream"
    METRICS = MEDIA_TYPE

    @property
    def is_raw(self) -> bool:
        """Whether an answer is bytes as they are."""
        return self in (Media.BYTES, Media.METRICS)


@dataclass(frozen=True)
class Endpoint:
    """One method of one path.

    `call` gets the context, then the body or the query if the endpoint has one. It returns the answer, or
    an awaitable of it: a value of type `answer`, bytes for a raw media type, or a Stream. Its docstring is
    the description in the OpenAPI document.
    """

    method: str
    path: str
    call: Callable[..., object]
    answer: Any
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | None = None
    media: Media = Media.JSON
    status: int = 200
    refusals: tuple[int, ...] = ()
    answer_headers: dict[str, str] = field(default_factory=dict)
    is_worker_task: bool = False  # needs its own process: not polled
    period_s: float | None = None  # for an answer that changes without events: how often to poll it

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        """Decoder of the body."""
        return msgspec.json.Decoder(self.body)

    @property
    def is_watchable(self) -> bool:
        """Whether it can be polled: a call changes nothing, and the answer ends."""
        return self.method == "GET" and self.media is Media.JSON and not self.is_worker_task

    async def handle(self, context: QueueContext, query: msgspec.Struct, body: object) -> Any:
        """Return the answer to a request that was checked and decoded."""
        if self.body is not None:
            answer = self.call(context, body)
        elif self.query is not NoQuery:
            answer = self.call(context, query)
        else:
            answer = self.call(context)
        return await answer if inspect.isawaitable(answer) else answer
