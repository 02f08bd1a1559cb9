"""Events that the daemon streams."""

from __future__ import annotations

import msgspec

from stoker.core.lifecycle import State


class JobEvent(msgspec.Struct, frozen=True, kw_only=True, tag="job", tag_field="event"):
    """The state of a job has changed."""

    id: int
    state: State
    attempt: int
    at: float
    slots: str | None = None
    reason: str | None = None


class GpuEvent(msgspec.Struct, frozen=True, kw_only=True, tag="gpu", tag_field="event"):
    """A slot was closed, or opened again."""

    slot: str
    closed: str | None
    at: float


class NoticeEvent(msgspec.Struct, frozen=True, kw_only=True, tag="notice", tag_field="event"):
    """A message for the user."""

    text: str
    at: float


class LaggedEvent(msgspec.Struct, frozen=True, kw_only=True, tag="lagged", tag_field="event"):
    """The client was too slow and missed so many events."""

    missed: int


StreamEvent = JobEvent | GpuEvent | NoticeEvent | LaggedEvent
