"""What a route takes and gives, said once: routing, checking and the OpenAPI document come from it."""

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
    """How an answer comes."""

    JSON = "application/json"
    LINES = "application/x-ndjson"
    BYTES = "application/octet-stream"


@dataclass(frozen=True, kw_only=True)
class Endpoint(Generic[Query, Body]):
    """One method of one path.

    `call` gets a query and a body that have these types, and returns what is to be sent: a value of
    type `answer`, or a Stream where `media` is not JSON. Its docstring describes it in the document.
    It lets in those whom `lets_in` names, and nobody else.
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
    is_worker_task: bool = (
        False  # it takes a process of its own, and is worth asking only on purpose
    )
    period_s: float | None = None  # an answer that changes also while nothing happens: how often
    decoder: msgspec.json.Decoder[Body] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoder", msgspec.json.Decoder(self.body))

    @property
    def takes_body(self) -> bool:
        """Whether a request must bring a JSON body."""
        return self.body is not type(None)

    @property
    def is_watchable(self) -> bool:
        """Whether it can be asked again and again: to ask changes nothing, and the answer ends."""
        return self.method == "GET" and self.media is Media.JSON and not self.is_worker_task


OWNER = frozenset((Asker.OWNER,))
