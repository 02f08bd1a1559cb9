"""Messages between a tab and the daemon over a WebSocket; see docs/reference/web.md."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Nonce = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
Proof = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
MAX_QUERY = 8000
Number = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class _TabMessage(msgspec.Struct, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """Base of the messages that a tab sends."""


class Hello(_TabMessage, frozen=True, tag="hello"):
    """The first message of a tab: asks the daemon to prove itself."""

    nonce: Nonce


class Prove(_TabMessage, frozen=True, tag="prove"):
    """The second message of a tab: its own proof, of the token or of the handover secret."""

    proof: Proof
    by: Literal["token", "handover"] = "token"


class Watch(_TabMessage, frozen=True, tag="watch"):
    """Send the answer of a GET of this path and query, now and after every change.

    With `changes`, a later answer may come as the difference from the one before.
    """

    id: Number
    path: Annotated[str, msgspec.Meta(max_length=100)]
    query: Annotated[str, msgspec.Meta(max_length=MAX_QUERY)] = ""
    changes: bool = False


class Follow(_TabMessage, frozen=True, tag="follow"):
    """Send a log and what is added to it. The query is as for GET /v1/log, without `follow`."""

    id: Number
    query: Annotated[str, msgspec.Meta(max_length=MAX_QUERY)]


class Drop(_TabMessage, frozen=True, tag="drop"):
    """End the watch or the log with this number."""

    id: Number


TabMessage = Hello | Prove | Watch | Follow | Drop


class Challenge(msgspec.Struct, frozen=True, tag="challenge", tag_field="type", omit_defaults=True):
    """The daemon's proof and nonce; `handover` is its proof of the last daemon's handover secret."""

    nonce: str
    proof: str
    handover: str | None = None


class Welcome(msgspec.Struct, frozen=True, tag="welcome", tag_field="type", omit_defaults=True):
    """The tab's session is open. `handover` and `token` are encrypted with the session's key."""

    version: str
    host: str
    home: str
    handover: str
    token: str | None = None


class Begin(msgspec.Struct, frozen=True, tag="begin", tag_field="type"):
    """A log begins: its job and attempt, and the offset of the first byte."""

    id: int
    job: int
    attempt: int
    offset: int


class End(msgspec.Struct, frozen=True, tag="end", tag_field="type"):
    """A log is complete."""

    id: int


def data_frame(number: int, body: bytes) -> str:
    """Return the frame of an answer whose body is encoded JSON."""
    return f'{{"type":"data","id":{number},"body":{body.decode("utf-8")}}}'


def change_frame(number: int, change: bytes) -> str:
    """Return the frame of the difference between the last answer and this one."""
    return f'{{"type":"change","id":{number},"change":{change.decode("utf-8")}}}'


def problem_frame(number: int, body: bytes) -> str:
    """Return the frame of an error whose body is encoded JSON."""
    return f'{{"type":"problem","id":{number},"problem":{body.decode("utf-8")}}}'
