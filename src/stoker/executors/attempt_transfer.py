"""What travels with an attempt to another machine, and what comes back."""

from __future__ import annotations

import msgspec


class AttemptTransfer(msgspec.Struct, frozen=True, kw_only=True):
    """A tree that a job runs in a copy of, on whichever node it is.

    It runs in the folder `inside`. `run` is the place in the tree of a run's folder, and the folder that
    it has on the head. What it makes in `results`, a place in the tree, is brought to the folder `target`.
    """

    argv: list[str]
    snapshot: str
    inside: str = ""
    run: tuple[str, str] | None = None
    results: str | None = None
    target: str = ""
    limit_bytes: int = 0
