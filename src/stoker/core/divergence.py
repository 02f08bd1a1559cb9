"""Divergence of a run: values that are not finite in its metrics, or in the losses that its log shows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import msgspec

# Mixed precision skips steps whose gradients overflow: one norm of a gradient that is not finite is no news.
_CONFIRMED_REPORTS = 3  # in a row
_CONFIRMED_S = 60.0  # of a loss: a run that reports once an hour need not report three
_MOST_NAMES = 200
_NAME_LENGTH = 60
_NUMBER_LENGTH = 32
_NOT_FINITE = {b'"nan"': math.nan, b'"inf"': math.inf, b'"-inf"': -math.inf}
# Every repetition is bounded, so that no text makes the search slow. A loss scale is no loss.
_LOSS = re.compile(
    rb"(?:loss|Loss|LOSS)(?!_?scal)[\w.-]{0,32}[\"']?[ \t]{0,4}[:= \t][ \t]{0,4}[\"']?"
    rb"([+-]?(?:nan|NaN|NAN|inf(?:inity)?|Inf(?:inity)?|INF"
    rb"|\d{1,20}(?:\.\d{0,20})?(?:[eE][+-]?\d{1,3})?))(?:\.0)?(?!\w)"
)
_WORD = re.compile(rb"\w+")
_NAME_BEFORE = re.compile(rb"(?:[A-Za-z]\w{0,20} )?[\w./-]{0,32}\Z")
_BEFORE_LENGTH = 54
_decode_entry = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Value(msgspec.Struct, frozen=True):
    """A number that a run reported. `step` and `time` are its own, if it told them."""

    name: str
    number: float
    step: int | None = None
    time: float | None = None


class Divergence(msgspec.Struct, frozen=True):
    """A value that stays not finite since a moment, and the sentence that says so."""

    since: float
    text: str


class _Series(msgspec.Struct):
    """The latest values of one name. `since` is None while they are finite."""

    was_finite: bool = False
    since: float | None = None
    step: int | None = None
    reports: int = 0
    word: str = ""


class ReportedValues:
    """Follows the values of a run and tells which of them stay not finite.

    A value that is infinite from the start does not count: many programs begin with `best = inf`.
    """

    def __init__(self, place: str = "") -> None:
        self._place = place
        self._series: dict[str, _Series] = {}

    @property
    def needs_finite(self) -> bool:
        """Whether finite values matter now: none is known yet, or some last value is not finite."""
        series = self._series.values()
        return not any(each.was_finite for each in series) or any(
            each.since is not None for each in series
        )

    def note(self, value: Value, now: float) -> None:
        """Note a value that the run reported until now."""
        series = self._series.get(value.name)
        if series is None:
            if len(self._series) >= _MOST_NAMES:
                return
            series = self._series[value.name] = _Series()
        if math.isfinite(value.number):
            series.was_finite, series.since, series.reports = True, None, 0
            return
        if series.since is None:
            if math.isinf(value.number) and not series.was_finite:
                return
            series.since, series.step = now, value.step
            series.word = "nan" if math.isnan(value.number) else "infinite"
        series.reports += 1

    def divergence(self, now: float) -> Divergence | None:
        """The value that is not finite for the longest time; None while it can still be a single step."""
        found = [
            (series.since, name, series)
            for name, series in self._series.items()
            if series.since is not None
            and (
                series.reports >= _CONFIRMED_REPORTS
                or ("loss" in name.lower() and now - series.since >= _CONFIRMED_S)
            )
        ]
        if not found:
            return None
        since, name, series = min(found, key=lambda each: each[0])
        moment = "" if series.step is None else f" since step {series.step}"
        return Divergence(since, f"{name} is {series.word}{self._place}{moment}")


def read_metrics(data: bytes) -> Iterator[Value]:
    """Yield the numbers in lines of `metrics.jsonl`; other lines and other values are left out."""
    for line in data.split(b"\n"):
        if not line:
            continue
        try:
            entry = _decode_entry(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        step, time = _number(entry.pop("step", None)), _number(entry.pop("time", None))
        for name, raw in entry.items():
            number = _number(raw)
            if number is not None:
                whole = int(step) if step is not None and math.isfinite(step) else None
                yield Value(_printable(name), number, whole, time)


def may_show_divergence(text: bytes) -> bool:
    """Whether a piece of a log can show a loss that is not finite. It is quicker than reading the losses."""
    lower = text.lower()
    return b"nan" in lower or b"inf" in lower


def read_losses(text: bytes) -> Iterator[Value]:
    """Yield the losses in a piece of a log: `loss=nan`, `'val_loss': 0.3`, `train loss 2.1`."""
    for match in _LOSS.finditer(text):
        begin = match.start()
        before = _NAME_BEFORE.search(text, max(0, begin - _BEFORE_LENGTH), begin)
        word = _WORD.match(text, begin, match.start(1))
        name = (before[0] if before else b"") + (word[0] if word else b"")
        yield Value(_printable(name.decode("utf-8", "replace")), float(match[1]))


def _number(raw: msgspec.Raw | None) -> float | None:
    """Read a number; None for anything else."""
    if raw is None:
        return None
    text = bytes(raw)
    if text[:1] in b"-0123456789":
        return float(text) if len(text) <= _NUMBER_LENGTH else 0.0
    return _NOT_FINITE.get(text)


def _printable(name: str) -> str:
    if len(name) <= _NAME_LENGTH and name.isprintable():
        return name
    text = "".join(char if char.isprintable() else "?" for char in name[: _NAME_LENGTH + 1])
    return text if len(text) <= _NAME_LENGTH else f"{text[: _NAME_LENGTH - 1]}…"
