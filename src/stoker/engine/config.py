"""What a user can set for the daemon, each entry with its default and its meaning."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from stoker.errors import NotFoundError, StokerError, UsageError
from stoker.gpus.slots import parse_slots
from stoker.store.database import Database
from stoker.wire import Setting

_MOST_PLACES = 10_000


class Entry(msgspec.Struct, frozen=True):
    """A setting that exists."""

    default: str
    meaning: str
    check: Callable[[str], object]


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 12:
        raise ValueError("a whole number, 0 or more")
    return int(text)


def _positive(text: str) -> int:
    number = _count(text)
    if not number:
        raise ValueError("a whole number, 1 or more")
    return number


def _places(text: str) -> int | None:
    if text == "auto":
        return None
    number = _positive(text)
    if number > _MOST_PLACES:
        raise ValueError(f"auto, or a whole number from 1 to {_MOST_PLACES}")
    return number


def _gpus(text: str) -> None:
    # Whether they exist is seen when the daemon starts; it must not be kept from starting by a slip.
    if text != "default":
        try:
            parse_slots(text, None, "0")
        except StokerError as error:
            raise ValueError(str(error)) from None


def _size(text: str) -> int:
    if text == "none":
        return 0
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    if not number.isdecimal() or int(number) * unit < 4096 or len(number) > 12:
        raise ValueError("none, or a size of at least 4K: 500K, 20M, 1G")
    return int(number) * unit


ENTRIES = {
    "gpus": Entry("default", "slots: 0,1 or 0-3 or 0+1,2+3; default: every GPU not in use", _gpus),
    "cpu.jobs": Entry("auto", "jobs without GPU at once; auto: as many as CPUs", _places),
    "keep.days": Entry("90", "days for which ended jobs and their logs are kept", _positive),
    "keep.jobs": Entry("100000", "ended jobs that are kept at most", _count),
    "log.cap": Entry("none", "size at which a log is cut in its middle: none, 20M, 1G", _size),
}


class Config:
    """The daemon's settings, kept in its database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._values: dict[str, str] = dict(database.execute("SELECT name, value FROM config"))

    def text(self, name: str) -> str:
        """A setting as it was written, or its default."""
        return self._values.get(name) or entry_of(name).default

    def count(self, name: str) -> int:
        """A setting that is a number."""
        return int(self.text(name))

    @property
    def log_cap_bytes(self) -> int | None:
        """The size beyond which a log is cut; None if it never is."""
        return _size(self.text("log.cap")) or None

    @property
    def cpu_places(self) -> int:
        """How many jobs without GPU may run at once."""
        return _places(self.text("cpu.jobs")) or len(os.sched_getaffinity(0))

    @property
    def gpus(self) -> str | None:
        """The slots as named by the user; None for every GPU that is not in use."""
        text = self.text("gpus")
        return None if text == "default" else text

    def all(self) -> list[Setting]:
        """Every setting."""
        return [self.setting(name) for name in ENTRIES]

    def setting(self, name: str) -> Setting:
        """One setting with all that is known about it."""
        entry = entry_of(name)
        return Setting(
            name=name, value=self.text(name), default=entry.default, meaning=entry.meaning
        )

    def change(self, name: str, value: str | None) -> Setting:
        """Remember a value, or with None the default; refused if it makes no sense."""
        entry = entry_of(name)
        if value is not None:
            try:
                entry.check(value)
            except ValueError as error:
                raise UsageError(f"{name} cannot be {value!r}: {error}") from None
        with self._database.transaction(durable=True):
            if value is None or value == entry.default:
                self._database.write("DELETE FROM config WHERE name = ?", (name,))
            else:
                self._database.write(
                    "INSERT INTO config VALUES (?, ?)"
                    " ON CONFLICT DO UPDATE SET value = excluded.value",
                    (name, value),
                )
        self._values = dict(self._database.execute("SELECT name, value FROM config"))
        return self.setting(name)


def entry_of(name: str) -> Entry:
    """The setting of this name; raises NotFoundError with those that exist."""
    if name not in ENTRIES:
        raise NotFoundError(f"there is no setting '{name}'; there are: {', '.join(ENTRIES)}")
    return ENTRIES[name]
