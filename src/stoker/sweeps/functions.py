"""Functions of the parameter grammar: `range(3)`, `linspace(0, 1, 5)`, `loguniform(1e-5, 1e-1)`."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from stoker.sweeps.distributions import Distribution, make_distribution
from stoker.sweeps.tree import DefinitionError

MAX_VALUES = 10_000_000


class Zipped(msgspec.Struct, frozen=True):
    """Columns that vary together: the first of each, the second of each."""

    columns: tuple[Sequence[Any], ...]


Result = Sequence[Any] | Distribution | Zipped

USAGE = {
    "choice": "choice(a, b, …)",
    "range": "range(stop), range(start, stop) or range(start, stop, step)",
    "linspace": "linspace(first, last, count)",
    "logspace": "logspace(first exponent, last exponent, count), of 10",
    "uniform": "uniform(min, max)",
    "loguniform": "loguniform(min, max)",
    "randint": "randint(min, max), both included",
    "normal": "normal(mu, sigma)",
    "zip": "zip([a, b], [c, d])",
}


def call(name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Result:
    """Call a function of the grammar; raise DefinitionError if its arguments are wrong."""
    try:
        return _FUNCTIONS[name](*arguments, **named)
    except TypeError:
        raise DefinitionError(f"write {USAGE[name]}") from None
    except (OverflowError, ZeroDivisionError) as error:
        raise DefinitionError(f"{USAGE[name]}: {error}") from None


def meant_function(name: str) -> str | None:
    """Return the function whose name is closest to an unknown name; None if none is close."""
    near = difflib.get_close_matches(name, USAGE, n=1, cutoff=0.75)
    return near[0] if near else None


def _choice(*values: Any) -> Sequence[Any]:
    return list(values)


def _range(*limits: Any, **named: Any) -> Sequence[Any]:
    start, stop, step = _range_limits(*limits, **named)
    numbers = [_fraction(number) for number in (start, stop, step)]
    if not numbers[2]:
        raise DefinitionError("the step is 0: write another one")
    if all(isinstance(number, int) for number in (start, stop, step)):
        found = range(start, stop, step)
        _check_count(_length(found))
        return found
    low, high, width = numbers
    count = max(0, math.ceil((high - low) / width))
    _check_count(count)
    return [float(low + place * width) for place in range(count)]


def _range_limits(*limits: Any, **named: Any) -> tuple[Any, Any, Any]:
    if len(limits) == 1 and "stop" not in named:
        return named.pop("start", 0), limits[0], _step(**named)
    names = dict(zip(("start", "stop", "step"), limits, strict=False), **named)
    if len(limits) > 3 or "stop" not in names or set(names) - {"start", "stop", "step"}:
        raise TypeError
    return names.get("start", 0), names["stop"], names.get("step", 1)


def _step(step: Any = 1) -> Any:
    return step


def _length(found: range) -> int:
    """Return the length of a range of any size: len() fails beyond 2**63."""
    return max(0, -((found.start - found.stop) // found.step))


def _linspace(first: Any, last: Any, count: Any) -> Sequence[Any]:
    return [float(point) for point in _spread(first, last, count)]


def _logspace(first: Any, last: Any, count: Any) -> Sequence[Any]:
    # An integer exponent is parsed as text: 10.0 ** -5 is not exactly 1e-05.
    return [
        float(f"1e{point}") if point.denominator == 1 else 10.0 ** float(point)
        for point in _spread(first, last, count)
    ]


def _spread(first: Any, last: Any, count: Any) -> list[Fraction]:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise DefinitionError(f"the count is {count!r}: it must be a whole number of at least 1")
    _check_count(count)
    low, high = _fraction(first), _fraction(last)
    return [low + (high - low) * place / max(1, count - 1) for place in range(count)]


def _fraction(number: Any) -> Fraction:
    """Return a number exactly as it is written: 0.1 is one tenth."""
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise DefinitionError(f"{number!r} is not a number")
    return Fraction(repr(number))


def _check_count(count: int) -> None:
    if count > MAX_VALUES:
        raise DefinitionError(f"{count:,} values are more than can be queued ({MAX_VALUES:,})")


def _zip(*columns: Any) -> Zipped:
    if not columns or not all(isinstance(column, (list, range)) for column in columns):
        raise DefinitionError(f"write {USAGE['zip']}")
    return Zipped(columns)


def _distribution(shape: str, *names: str) -> Callable[..., Distribution]:
    def make(*arguments: Any, **named: Any) -> Distribution:
        if len(arguments) > len(names):
            raise TypeError
        return make_distribution(shape, {**dict(zip(names, arguments, strict=False)), **named})

    return make


_FUNCTIONS: dict[str, Callable[..., Result]] = {
    "choice": _choice,
    "range": _range,
    "linspace": _linspace,
    "logspace": _logspace,
    "uniform": _distribution("uniform", "min", "max"),
    "loguniform": _distribution("log_uniform_values", "min", "max"),
    "randint": _distribution("int_uniform", "min", "max"),
    "normal": _distribution("normal", "mu", "sigma"),
    "zip": _zip,
}
