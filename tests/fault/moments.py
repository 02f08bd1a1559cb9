"""At what moment of the jobs' lives a kill has come, by what was on record then."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from fault.home import Attempt


class Moment(enum.Enum):
    """The most delicate thing that was going on when a process was killed, in this order."""

    INTENT = "intent on record, not started"
    ENDED = "ended, end not on record"
    STARTED = "running, start not on record"
    RUNNING = "running"
    WAITING = "jobs wait, none runs"
    IDLE = "nothing to do"

    @property
    def is_between(self) -> bool:
        """Whether a job was between its intent and the record of its end."""
        return self in (Moment.INTENT, Moment.ENDED, Moment.STARTED, Moment.RUNNING)


class Journalled(NamedTuple):
    """When an attempt started and ended, as far as the journal tells."""

    started_at_us: int | None = None
    ended_at_us: int | None = None


def moment_of(
    killed_at_us: int, live: list[Attempt], waiting: int, journal: Iterable[list[str]]
) -> Moment:
    """The moment of a kill, from the database as it was left and the journal shortly afterwards."""
    known = _read(journal)
    found = {_stage(attempt, known.get(attempt.key), killed_at_us) for attempt in live}
    if not found:
        return Moment.WAITING if waiting else Moment.IDLE
    return next(moment for moment in Moment if moment in found)


def _stage(attempt: Attempt, told: Journalled | None, killed_at_us: int) -> Moment:
    if told is None or told.started_at_us is None or told.started_at_us > killed_at_us:
        return Moment.INTENT
    if told.ended_at_us is not None and told.ended_at_us <= killed_at_us:
        return Moment.ENDED
    return Moment.STARTED if attempt.state == "starting" else Moment.RUNNING


def _read(journal: Iterable[list[str]]) -> dict[str, Journalled]:
    known: dict[str, Journalled] = {}
    for words in journal:
        match words:
            case ["spawn", key]:
                known[key] = Journalled()
            case ["start", key, _, _, _, at_us]:
                known[key] = Journalled(int(at_us))
            case ["end", key, _, at_us, *_]:
                known[key] = known.get(key, Journalled())._replace(ended_at_us=int(at_us))
    return known


def histogram(moments: Counter[Moment]) -> str:
    """How many kills came when."""
    total = sum(moments.values())
    between = sum(count for moment, count in moments.items() if moment.is_between)
    lines = [f"{moments[moment]:6}  {moment.value}" for moment in Moment]
    return "\n".join(
        [f"{total} kills, {between} of them between a job's intent and its end record:", *lines]
    )
