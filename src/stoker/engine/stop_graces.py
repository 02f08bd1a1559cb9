"""Learns how long preempted jobs take to end, and gives them the grace that they need."""

from __future__ import annotations

import signal
from collections.abc import Callable

import msgspec

from stoker.core.job import Options, Outcome
from stoker.core.lifecycle import Event
from stoker.core.stop_times import StopTimes
from stoker.engine.eta import kind_of_facts
from stoker.engine.running_attempt import RunningAttempt
from stoker.store.database import Database
from stoker.store.named_values import NamedValues

_KINDS = 1000
_USUAL_S = Options().grace_s
_decoder = msgspec.json.Decoder(StopTimes)


class StopGraces:
    """The grace of preempted jobs whose user has not set one, by their kind."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._values = NamedValues(database, "stop_time.")
        self._known = {name: _decoder.decode(value) for name, value in self._values.all().items()}
        self._asked: dict[str, tuple[str, float, float]] = {}  # attempt: kind, since when, grace

    def grace_of(self, running: RunningAttempt) -> float:
        """Return the grace of an attempt that is preempted now."""
        facts, options = running.entry.facts, running.entry.request.options
        if facts is None or options.grace_s != _USUAL_S:
            return options.grace_s
        kind = kind_of_facts(facts)
        grace_s = self._known.get(kind, StopTimes()).grace_s(_USUAL_S)
        self._asked[running.key] = kind, self._clock(), grace_s
        return grace_s

    def on_end(self, running: RunningAttempt, outcome: Outcome) -> None:
        """Learn from an attempt that was preempted. Runs inside the engine's transaction."""
        asked = self._asked.pop(running.key, None)
        if asked is None or outcome.event is not Event.PREEMPT or running.is_suspended:
            return
        kind, since, grace_s = asked
        took_s = self._clock() - since
        killed = took_s >= grace_s or (outcome.status or 0) & 0x7F == signal.SIGKILL
        learned = self._known.pop(kind, StopTimes()).learn(
            grace_s if killed else took_s, killed=killed
        )
        self._known[kind] = learned
        self._values.put(kind, msgspec.json.encode(learned))
        if len(self._known) > _KINDS:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._values.forget(oldest)
