"""Description of an endpoint, from which routing, checks and the OpenAPI document are derived."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from stoker.api.access import Asker

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext

VERSION = "v1"

Query = TypeVar("Query", bound=msgspec.Struct)
Body = TypeVar("Body")


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Media(str, enum.Enum):
    """Media type of an answer."""

    JSON = "application/json"
    LINES = "application/x-ndjson"
    BYTES = "application/octet-stream"


@dataclass(frozen=True, kw_only=True)
class Endpoint(Generic[Query, Body]):
    """One method of one path.

    `call` gets a query and a body of these types and returns the answer: a value of type `answer`, or a
    Stream if `media` is not JSON. Its docstring is the description in the OpenAPI document. Only askers in
    `lets_in` are admitted.
    """

    method: str
    path: str
    call: Callable[[QueueContext, Query, Body], Awaitable[object]]
    query: type[Query]
    body: type[Body]
    answer: Any
    media: Media = Media.JSON
    status: int = 200
    refusals: tuple[int, ...] = ()
    lets_in: frozenset[Asker] = frozenset()
    answer_headers: dict[str, str] = field(default_factory=dict)
    is_worker_task: bool = False  # needs its own process: not polled
    period_s: float | None = None  # for an answer that changes without events: how often to poll it
    decoder: msgspec.json.Decoder[Body] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoder", msgspec.json.Decoder(self.body))

    @property
    def takes_body(self) -> bool:
        """Whether a request must have a JSON body."""
        return self.body is not type(None)

    @property
    def is_watchable(self) -> bool:
        """Whether it can be polled: a call changes nothing, and the answer ends."""
        return self.method == "GET" and self.media is Media.JSON and not self.is_worker_task


OWNER = frozenset((Asker.OWNER,))
