"""The rules of a box that people share: shares, limits, GPUs for some only, weekly reservations. Pure.

`parse_rules` reads them from parsed TOML. A mistake is a `RuleError` that names the key, so that the caller
can find its line.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from stoker.core.durations import parse_duration, parse_span, spell_duration
from stoker.errors import UsageError

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)|(24):(00)")
_DAY_MINUTES = 1440
_MOST_GPU = 1024


class RuleError(Exception):
    """A mistake in the rules, at a key of a table; `number` tells which table of that name, from 0."""

    def __init__(self, text: str, table: str, key: str | None = None, number: int = 0) -> None:
        super().__init__(text)
        self.table = table
        self.key = key
        self.number = number


class Person(msgspec.Struct, frozen=True):
    """A user with the names of its groups."""

    name: str
    groups: frozenset[str] = frozenset()

    def is_among(self, names: Iterable[str]) -> bool:
        """Whether names of users and @groups include this one."""
        return any(
            name[1:] in self.groups if name.startswith("@") else name == self.name for name in names
        )


class Moment(msgspec.Struct, frozen=True):
    """A local time: the date, the day of the week from Monday as 0, and the minute of the day."""

    date: str
    day: int
    minute: int

    def day_before(self) -> Moment:
        """Return the same minute of the day before."""
        before = datetime.date.fromisoformat(self.date) - datetime.timedelta(days=1)
        return Moment(before.isoformat(), (self.day - 1) % 7, self.minute)


class Limits(msgspec.Struct, frozen=True):
    """The most GPUs of a user at once, the most seconds of a job, and of a reservation; None without one."""

    gpus: int | None = None
    job_s: float | None = None
    reserve_s: float | None = None


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs for some users: always, or on some days from one minute of the day to another.

    If the end is not after the beginning, it is on the next day.
    """

    gpus: frozenset[str]
    users: tuple[str, ...]
    days: frozenset[int] = frozenset(range(7))
    date: str | None = None
    begin: int = 0
    end: int = _DAY_MINUTES
    name: str | None = None

    @property
    def is_timed(self) -> bool:
        """Whether it begins and ends."""
        return self.date is not None or len(self.days) < 7 or (self.begin, self.end) != (0, 1440)

    def holds_at(self, now: Moment) -> bool:
        """Whether it is in force at a time."""
        if self.begin < self.end:
            return self._begins_on(now) and self.begin <= now.minute < self.end
        if now.minute >= self.begin:
            return self._begins_on(now)
        return now.minute < self.end and self._begins_on(now.day_before())

    def _begins_on(self, now: Moment) -> bool:
        return now.date == self.date if self.date is not None else now.day in self.days

    def describe(self) -> str:
        """Say for whom it is, and until when."""
        whom = self.name or ", ".join(self.users)
        until = f" until {self.end // 60:02}:{self.end % 60:02}" if self.is_timed else ""
        return f"is for {whom} only{until}"


class BoxRules(msgspec.Struct, frozen=True, kw_only=True):
    """All rules of a box. Without any, everybody has a share of one."""

    shares: Mapping[str, float] = {}
    limits: Limits = Limits()
    limits_of: Mapping[str, Limits] = {}
    preemptible_s: float | None = None
    reservations: tuple[Reservation, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every user and @group that the rules name, each once."""
        reserved = (name for each in self.reservations for name in each.users)
        return tuple(dict.fromkeys((*self.shares, *self.limits_of, *reserved)))

    def share_of(self, person: Person) -> float:
        """Return the share of a user: its own, else the largest of its groups, else one."""
        if person.name in self.shares:
            return self.shares[person.name]
        found = [share for name, share in self.shares.items() if person.is_among([name])]
        return max(found, default=1.0)

    def limits_for(self, person: Person) -> Limits:
        """Return the limits of a user: its own, else those of the first of its groups, else all's."""
        for name in (person.name, *(name for name in self.limits_of if name.startswith("@"))):
            own = self.limits_of.get(name)
            if own is not None and person.is_among([name]):
                return Limits(
                    self.limits.gpus if own.gpus is None else own.gpus,
                    self.limits.job_s if own.job_s is None else own.job_s,
                    self.limits.reserve_s if own.reserve_s is None else own.reserve_s,
                )
        return self.limits

    def why_closed(self, gpus: Iterable[str], person: Person, now: Moment) -> str | None:
        """Return why a user may start no job on these GPUs now; None if it may."""
        wanted = frozenset(gpus)
        for reservation in self.reservations:
            if (
                not reservation.gpus.isdisjoint(wanted)
                and reservation.holds_at(now)
                and not person.is_among(reservation.users)
            ):
                return reservation.describe()
        return None

    @property
    def is_timed(self) -> bool:
        """Whether the rules differ from one time to another."""
        return any(reservation.is_timed for reservation in self.reservations)


def describe_rules(rules: BoxRules) -> list[str]:
    """Write the rules as lines for people."""
    lines = [f"share of {name}: {share:g}" for name, share in rules.shares.items()]
    every = [("everybody", rules.limits), *rules.limits_of.items()]
    for name, limits in every:
        if limits.gpus is not None:
            lines.append(f"GPUs of {name} at once: at most {limits.gpus}")
        if limits.job_s is not None:
            lines.append(f"job of {name}: at most {limits.job_s / 3600:g} hours")
        if limits.reserve_s is not None:
            most = f"at most {spell_duration(limits.reserve_s)}" if limits.reserve_s else "none"
            lines.append(f"reservation of {name}: {most}")
    if rules.preemptible_s is not None:
        lines.append(f"a preemptible job makes room after {spell_duration(rules.preemptible_s)}")
    for each in rules.reservations:
        gpus = ", ".join(sorted(each.gpus, key=int))
        lines.append(
            f"GPU {gpus}: for {each.name or ', '.join(each.users)} only{_describe_times(each)}"
        )
    return lines


def _describe_times(each: Reservation) -> str:
    if not each.is_timed:
        return ""
    days = each.date or ", ".join(DAYS[day] for day in sorted(each.days))
    begin, end = (f"{minute // 60:02}:{minute % 60:02}" for minute in (each.begin, each.end))
    next_day = " of the next day" if each.end <= each.begin else ""
    return f", {days} {begin} to {end}{next_day}"


def parse_rules(found: Mapping[str, Any]) -> BoxRules:
    """Make rules of parsed TOML."""
    for table in found:
        if table not in ("shares", "limits", "reservations"):
            raise RuleError(
                f"there is no table {table}: use shares, limits and reservations", table
            )
    limits, limits_of, preemptible_s = _read_limits(_table(found, "limits"))
    return BoxRules(
        shares={
            name: _number("shares", name, share) for name, share in _table(found, "shares").items()
        },
        limits=limits,
        limits_of=limits_of,
        preemptible_s=preemptible_s,
        reservations=tuple(_read_reservations(found.get("reservations", []))),
    )


def _table(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = found.get(name, {})
    if not isinstance(table, dict):
        raise RuleError(f"{name} is a table: write [{name}]", name)
    return table


def _number(table: str, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e6:
        raise RuleError(f"{key} = {value!r}: write a number above 0", table, key)
    return float(value)


def _read_limits(table: Mapping[str, Any]) -> tuple[Limits, dict[str, Limits], float | None]:
    limits_of = {}
    plain: dict[str, Any] = {}
    preemptible_s = None
    for key, value in table.items():
        if isinstance(value, dict):
            limits_of[key] = _limits(value, f"limits.{key}")
        elif key == "preemptible":
            preemptible_s = _duration("limits", key, value, parse_duration)
        else:
            plain[key] = value
    return _limits(plain, "limits"), limits_of, preemptible_s


def _limits(found: Mapping[str, Any], table: str) -> Limits:
    for key in found:
        if key not in ("gpus", "hours", "reserve"):
            raise RuleError(
                f"there is no limit {key}: use gpus, hours, reserve and preemptible", table, key
            )
    gpus, hours = found.get("gpus"), found.get("hours")
    if gpus is not None and (isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 0):
        raise RuleError(f"gpus = {gpus!r}: write how many GPUs a user may hold", table, "gpus")
    reserve = found.get("reserve")
    return Limits(
        gpus,
        None if hours is None else 3600.0 * _number(table, "hours", hours),
        None if reserve is None else _duration(table, "reserve", reserve, parse_span),
    )


def _duration(table: str, key: str, value: Any, parse: Callable[[str], float]) -> float:
    try:
        return parse(str(value))
    except UsageError as error:
        raise RuleError(f"{key}: {error}", table, key) from None


def _read_reservations(found: Any) -> list[Reservation]:
    if not isinstance(found, list):
        raise RuleError("reservations are a list of tables: write [[reservations]]", "reservations")
    return [_Reader(number, table).read() for number, table in enumerate(found)]


class _Reader:
    """Reads one table of reservations."""

    def __init__(self, number: int, table: Any) -> None:
        self._number = number
        self._table: Mapping[str, Any] = table if isinstance(table, dict) else {}

    def read(self) -> Reservation:
        for key in self._table:
            if key not in ("gpus", "for", "days", "date", "from", "to", "name"):
                raise self._error(f"there is no key {key} in a reservation", key)
        users = self._table.get("for")
        users = [users] if isinstance(users, str) else users
        if not isinstance(users, list) or not users or not all(isinstance(u, str) for u in users):
            raise self._error('for: write the users and @groups: for = ["alice", "@staff"]', "for")
        begin, end = self._minute("from", 0), self._minute("to", _DAY_MINUTES)
        if begin == end:
            raise self._error("to: write another time than that of from", "to")
        name = self._table.get("name")
        return Reservation(
            gpus=self._gpus(),
            users=tuple(users),
            days=self._days(),
            date=self._date(),
            begin=begin,
            end=end,
            name=None if name is None else str(name),
        )

    def _error(self, text: str, key: str) -> RuleError:
        return RuleError(text, "reservations", key, self._number)

    def _gpus(self) -> frozenset[str]:
        found: set[str] = set()
        for part in str(self._table.get("gpus", "")).replace(" ", "").split(","):
            first, dash, last = part.partition("-")
            if not (first.isdecimal() and (last.isdecimal() or not dash)):
                raise self._error('gpus: write the numbers of GPUs: gpus = "0-3,6"', "gpus")
            begin, end = int(first), int(last or first)
            if end < begin or end >= _MOST_GPU:
                raise self._error(f'gpus: {part} is no range of GPUs: write "0-3"', "gpus")
            found.update(map(str, range(begin, end + 1)))
        return frozenset(found)

    def _days(self) -> frozenset[int]:
        days = self._table.get("days")
        if days is None:
            return frozenset(range(7))
        parts = days if isinstance(days, list) else str(days).replace(" ", "").split(",")
        found: set[int] = set()
        for part in parts:
            first, _dash, last = str(part).partition("-")
            if first not in DAYS or (last or first) not in DAYS:
                raise self._error(f'days: {part!r} is no day: write "Mon-Fri" or "Mon,Wed"', "days")
            begin, end = DAYS.index(first), DAYS.index(last or first)
            found.update(day % 7 for day in range(begin, end + 1 + 7 * (end < begin)))
        return frozenset(found)

    def _date(self) -> str | None:
        date = self._table.get("date")
        if date is None:
            return None
        if not isinstance(date, datetime.date) or isinstance(date, datetime.datetime):
            raise self._error("date: write a day: date = 2026-12-24", "date")
        return date.isoformat()

    def _minute(self, key: str, usual: int) -> int:
        value = self._table.get(key)
        if value is None:
            return usual
        text = value.strftime("%H:%M") if isinstance(value, datetime.time) else str(value)
        match = _TIME.fullmatch(text)
        if match is None:
            raise self._error(f'{key}: write a time of the day: {key} = "14:00"', key)
        hour, minute = (match[1], match[2]) if match[1] is not None else (match[3], match[4])
        return int(hour) * 60 + int(minute)
