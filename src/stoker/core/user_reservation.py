"""A user's reservation: so many GPUs that a user keeps for some time. Pure: time is an argument.

A reservation gets no GPU before others. It keeps those that its user has got in turn: they are neither
yielded nor released until it ends. All times are seconds of the Unix epoch.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

import msgspec

DEFAULT_LONGEST_S = 86_400.0
"""The longest reservation where the rules of the machine set no other."""


class UserReservation(msgspec.Struct, frozen=True, kw_only=True):
    """So many GPUs for the user of a queue, from one time to another."""

    id: int
    gpus: int
    begin_at: float
    end_at: float

    def is_in_force(self, at: float) -> bool:
        """Whether it has begun and has not ended."""
        return self.begin_at <= at < self.end_at


def cut(reservations: Iterable[UserReservation], longest_s: float) -> list[UserReservation]:
    """Return reservations no longer than the rules of the machine allow."""
    return [
        msgspec.structs.replace(each, end_at=min(each.end_at, each.begin_at + longest_s))
        for each in reservations
    ]


def reserved_until(reservations: Iterable[UserReservation], now: float) -> list[float]:
    """Return until when each GPU is reserved now, the latest first. Reservations add up."""
    ends = [each.end_at for each in reservations if each.is_in_force(now) for _ in range(each.gpus)]
    return sorted(ends, reverse=True)


def next_change(reservations: Iterable[UserReservation], now: float) -> float:
    """Return when the next reservation begins or ends; infinity if none does."""
    moments = [at for each in reservations for at in (each.begin_at, each.end_at) if at > now]
    return min(moments, default=float("inf"))


def is_credible(end_at: float, now: float, longest_s: float) -> bool:
    """Whether a GPU can be reserved until a time, as another user tells, by the rules of the machine."""
    return now < end_at <= now + longest_s + 1.0


def most_at_once(new: UserReservation, others: Sequence[UserReservation]) -> int:
    """Return the most GPUs that are reserved at one moment of a new reservation."""
    begins = [each.begin_at for each in others if new.is_in_force(each.begin_at)]
    return max(
        sum(each.gpus for each in (new, *others) if each.is_in_force(moment))
        for moment in (new.begin_at, *begins)
    )


def stretch_s(new: UserReservation, others: Iterable[UserReservation]) -> float:
    """Return how long GPUs are reserved without a gap, in a new reservation and those next to it."""
    begin, end = new.begin_at, new.end_at
    apart = [*others]
    while near := [each for each in apart if each.begin_at <= end and each.end_at >= begin]:
        begin = min(begin, *(each.begin_at for each in near))
        end = max(end, *(each.end_at for each in near))
        apart = [each for each in apart if each not in near]
    return end - begin


def spell_time(at: float, now: float) -> str:
    """Write a time for people who read it now, in local time: 18:00, Thu 18:00, 2026-12-24 18:00."""
    moment, today = datetime.datetime.fromtimestamp(at), datetime.datetime.fromtimestamp(now)
    days = (moment.date() - today.date()).days
    if not days:
        return f"{moment:%H:%M}"
    # The English names of days, whatever the language of the machine.
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[moment.weekday()]
    return f"{day} {moment:%H:%M}" if 0 < days < 7 else f"{moment:%Y-%m-%d %H:%M}"
