"""Progress of an engine: how many jobs ended how, and whether more jobs start."""

from __future__ import annotations

import msgspec

from stoker.core.lifecycle import Event
from stoker.engine.claims_ahead import ClaimsAhead
from stoker.engine.events import Notices

_PAUSE_S = 1.0


class EngineRules(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine treats its jobs."""

    max_failures: int | None = None  # the engine drains after so many failures
    in_advance: bool = True  # claim jobs ahead for busy slots
    outlived: bool = False  # the executor outlives this engine and wants ends acknowledged


class Tally(msgspec.Struct):
    """How many commands ended how."""

    done: int = 0
    failed: int = 0
    killed: int = 0
    lost: int = 0
    pruned: int = 0

    def add(self, event: Event) -> None:
        """Count one final end."""
        match event:
            case Event.SUCCEED:
                self.done += 1
            case Event.KILL:
                self.killed += 1
            case Event.LOSE:
                self.lost += 1
            case Event.PRUNE:
                self.pruned += 1
            case _:
                self.failed += 1


class RunProgress:
    """Counts ended jobs, and knows whether jobs may start: not now, or never again."""

    def __init__(self, rules: EngineRules, claims_ahead: ClaimsAhead, notices: Notices) -> None:
        self.tally = Tally()
        self.draining = False
        self.finished = False  # all processes that jobs left behind are gone
        self.paused_until = 0.0
        self._rules = rules
        self._claims_ahead = claims_ahead
        self._notices = notices

    def drain(self) -> None:
        """Start nothing more; running jobs go on."""
        self.draining = True
        self._claims_ahead.revoke()

    def pause_briefly(self, now: float) -> None:
        """Start nothing for a moment, because the machine lacks a resource."""
        self.paused_until = now + _PAUSE_S

    def is_paused(self, now: float) -> bool:
        """Whether nothing may start now."""
        return self.draining or now < self.paused_until

    def count_end(self, event: Event) -> None:
        """Count a job that has ended; drain if it is the last allowed failure."""
        self.tally.add(event)
        most, tally = self._rules.max_failures, self.tally
        if event is Event.SUCCEED or most is None or self.draining:
            return
        if tally.failed + tally.killed + tally.lost >= most:
            what = "a command failed" if most == 1 else f"{most} commands failed"
            option = "--fail-fast" if most == 1 else "--max-failures"
            self._notices.tell(f"{what}: starting no more ({option})")
            self.drain()
