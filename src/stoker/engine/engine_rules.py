"""How an engine is to treat its jobs, and how it counts them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stoker.core.lifecycle import Event
from stoker.executors.attempt_transfer import AttemptTransfer
from stoker.warm.messages import ForkRequest


class EngineRules(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine treats its jobs."""

    max_failures: int | None = None  # after so many no more is started
    in_advance: bool = True
    outlived: bool = False  # the executor outlives this engine, and wants ends acknowledged


class Order(msgspec.Struct, frozen=True):
    """How an attempt is to be started."""

    argv: list[str]
    log: str | None = None
    context: int = 0
    env: Mapping[str, str] | None = None
    warm: ForkRequest | None = None
    cold: str | None = None  # why it is not, if it was to be
    transfer: AttemptTransfer | None = None  # what goes along if it is started on another node
    trace: str | None = None  # where it tells of its failure, if not in its log


class Preview(msgspec.Struct, frozen=True):
    """What would start now, and for which job a free slot is kept."""

    starting: set[int]
    reserved: dict[int, int]


class Tally(msgspec.Struct):
    """How many commands ended how."""

    done: int = 0
    failed: int = 0
    killed: int = 0
    lost: int = 0

    def add(self, event: Event) -> None:
        """Count one final end."""
        match event:
            case Event.SUCCEED:
                self.done += 1
            case Event.KILL:
                self.killed += 1
            case Event.LOSE:
                self.lost += 1
            case _:
                self.failed += 1
