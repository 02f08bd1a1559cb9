"""What a tab and the daemon say to each other over their WebSocket; docs/reference/web.md tells more."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Nonce = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
Proof = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
MAX_QUERY = 8000
Number = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class Hello(msgspec.Struct, frozen=True, tag="hello", tag_field="type", forbid_unknown_fields=True):
    """The first message of a tab: asks the daemon to prove itself."""

    nonce: Nonce


class Prove(msgspec.Struct, frozen=True, tag="prove", tag_field="type", forbid_unknown_fields=True):
    """The second message of a tab: its own proof, of the token or of the handover secret."""

    proof: Proof
    by: Literal["token", "handover"] = "token"


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


Said = Hello | Prove | Watch | Follow | Drop


class Challenge(msgspec.Struct, frozen=True, tag="challenge", tag_field="type", omit_defaults=True):
    """The daemon's proof, and its nonce for the tab's; `handover` proves the secret of before."""

    nonce: str
    proof: str
    handover: str | None = None


class Welcome(msgspec.Struct, frozen=True, tag="welcome", tag_field="type", omit_defaults=True):
    """The tab is let in. `handover` and `token` are hidden by the session's key."""

    version: str
    host: str
    home: str
    handover: str
    token: str | None = None


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
