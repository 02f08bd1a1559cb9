"""What a job asks of a GPU that it may share."""

from __future__ import annotations

import msgspec

from stoker.core.sharing.rules import AUTO, Share


class ShareRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting job, as far as sharing cares.

    `need_bytes` is what it has been seen to need at the least, `above_bytes` the size of a GPU on
    which it did not fit even alone. Since `since_s` it could have started but for room.
    """

    job: int
    kind: str
    share: Share = AUTO
    declared_bytes: int | None = None
    need_bytes: int | None = None
    alone: bool = False
    above_bytes: int = 0
    since_s: float = 0.0
    allowed: frozenset[str] | None = None  # the keys of GPUs; None for all
