"""A waiting job's request for a GPU that it may share."""

from __future__ import annotations

import msgspec

from stoker.core.host_room import HostNeed
from stoker.core.sharing.parameters import Params
from stoker.core.sharing.rules import AUTO, Share

ANY_HOST = HostNeed()


class ShareRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting job, as the sharing policy sees it.

    `need_bytes` is the least that it has been seen to need; `above_bytes` is the size of a GPU on which it
    did not fit even alone. Since `since_s` only the lack of room has kept it from starting. A job with
    `can_be_capped` takes no more memory than is reserved for it: if that is too little, it alone suffers.
    """

    job: int
    kind: str
    params: Params = ()
    can_be_capped: bool = False
    share: Share = AUTO
    declared_bytes: int | None = None
    need_bytes: int | None = None
    alone: bool = False
    above_bytes: int = 0
    since_s: float = 0.0
    allowed: frozenset[str] | None = None  # keys of GPUs; None: all
    host: HostNeed = ANY_HOST  # the CPUs and RAM that it declares
