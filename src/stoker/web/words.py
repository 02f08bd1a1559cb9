"""What a tab and the daemon say to each other over their WebSocket; docs/reference/web.md tells more."""

from __future__ import annotations

from typing import Annotated

import msgspec

MAX_TOKEN = 200
MAX_QUERY = 8000
Number = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class Hello(msgspec.Struct, frozen=True, tag="hello", tag_field="type", forbid_unknown_fields=True):
    """The first message of a tab."""

    token: Annotated[str, msgspec.Meta(max_length=MAX_TOKEN)]


class Watch(msgspec.Struct, frozen=True, tag="watch", tag_field="type", forbid_unknown_fields=True):
    """Keep telling what a GET of this path, with this query, answers."""

    id: Number
    path: Annotated[str, msgspec.Meta(max_length=100)]
    query: Annotated[str, msgspec.Meta(max_length=MAX_QUERY)] = ""


class Follow(
    msgspec.Struct, frozen=True, tag="follow", tag_field="type", forbid_unknown_fields=True
):
    """Send a log and what is added to it; the query is that of GET /v1/log without `follow`."""

    id: Number
    query: Annotated[str, msgspec.Meta(max_length=MAX_QUERY)]


class Drop(msgspec.Struct, frozen=True, tag="drop", tag_field="type", forbid_unknown_fields=True):
    """Tell no more of what was asked for by this number."""

    id: Number


Said = Hello | Watch | Follow | Drop


class Welcome(msgspec.Struct, frozen=True, tag="welcome", tag_field="type"):
    """The token is right."""

    version: str
    host: str
    home: str


class Begin(msgspec.Struct, frozen=True, tag="begin", tag_field="type"):
    """A log begins: of which job and attempt, and at which of its bytes."""

    id: int
    job: int
    attempt: int
    offset: int


class End(msgspec.Struct, frozen=True, tag="end", tag_field="type"):
    """A log is over: no more can come."""

    id: int


def data_frame(number: int, body: bytes) -> str:
    """An answer, as JSON that was encoded before."""
    return f'{{"type":"data","id":{number},"body":{body.decode("utf-8")}}}'


def problem_frame(number: int, body: bytes) -> str:
    """A refusal, as JSON that was encoded before."""
    return f'{{"type":"problem","id":{number},"problem":{body.decode("utf-8")}}}'
