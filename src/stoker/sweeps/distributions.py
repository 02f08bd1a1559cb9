"""Distributions from which parameters are drawn, under W&B's names.

A draw is a pure function of a number between 0 and 1. So a seed gives the same runs on every machine, and a
sweep that is enlarged keeps the runs it had.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist

import msgspec

from stoker.sweeps.beta import LARGEST, beta_quantile
from stoker.sweeps.tree import DefinitionError

Number = int | float

_LARGEST_EXPONENT = 700.0  # exp() of more overflows


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """One of SHAPES with its arguments: `min` and `max`, `mu` and `sigma`, or `a` and `b`; `q` rounds."""

    shape: str
    min: Number = 0.0
    max: Number = 1.0
    mu: Number = 0.0
    sigma: Number = 1.0
    a: Number = 1.0
    b: Number = 1.0
    q: Number | None = None

    def draw(self, u: float) -> Number:
        """Return the quantile at `u`, between 0 and 1 (both excluded)."""
        value = _DRAWS[self.shape.removeprefix("q_")](self, u)
        if self.q is None:
            return value
        # Multiples of an integer step stay integers, and 3 * 0.1 gives 0.3.
        steps = round(value / self.q)
        return steps * self.q if isinstance(self.q, int) else float(f"{steps * self.q:.12g}")


def _int_uniform(d: Distribution, u: float) -> Number:
    low, high = int(d.min), int(d.max)
    return min(high, low + int(u * (high - low + 1)))


def _log_uniform_values(d: Distribution, u: float) -> Number:
    low, high = math.log(d.min), math.log(d.max)
    return min(max(math.exp(low + u * (high - low)), d.min), d.max)


def _inv_log_uniform_values(d: Distribution, u: float) -> Number:
    return 1 / _log_uniform_values(
        Distribution(shape="log_uniform_values", min=1 / d.max, max=1 / d.min), u
    )


_DRAWS: dict[str, Callable[[Distribution, float], Number]] = {
    "uniform": lambda d, u: d.min + u * (d.max - d.min),
    "int_uniform": _int_uniform,
    "log_uniform": lambda d, u: math.exp(d.min + u * (d.max - d.min)),
    "log_uniform_values": _log_uniform_values,
    "inv_log_uniform": lambda d, u: math.exp(-(d.min + u * (d.max - d.min))),
    "inv_log_uniform_values": _inv_log_uniform_values,
    "normal": lambda d, u: NormalDist(d.mu, d.sigma).inv_cdf(u) if d.sigma else d.mu,
    "log_normal": lambda d, u: math.exp(NormalDist(d.mu, d.sigma).inv_cdf(u)),
    "beta": lambda d, u: beta_quantile(u, d.a, d.b),
}

_ROUNDED = ("uniform", "log_uniform", "log_uniform_values", "normal", "log_normal", "beta")
SHAPES = (*_DRAWS, *(f"q_{shape}" for shape in _ROUNDED))
ALIASES = {"loguniform": "log_uniform_values", "randint": "int_uniform"}


def make_distribution(shape: str, arguments: Mapping[str, object]) -> Distribution:
    """Make a distribution and check its arguments; raise DefinitionError if they are wrong."""
    shape = ALIASES.get(shape, shape)
    optional: dict[str, Number] = {}
    if shape.endswith("beta"):
        optional = {"a": 1.0, "b": 1.0}
    elif not has_limits(shape):
        optional = {"mu": 0.0, "sigma": 1.0}
    needed = tuple(optional) or ("min", "max")
    if shape.startswith("q_"):
        optional["q"] = 1
    values = {**optional, **arguments}
    for name in needed:
        if name not in values:
            raise DefinitionError(f"{shape} needs {' and '.join(needed)}: {name} is missing")
    for name in values:
        if name not in (*needed, *optional):
            raise DefinitionError(f"{shape} takes {', '.join((*needed, *optional))}, not {name}")
    numbers = {name: _number(name, value) for name, value in values.items()}
    distribution = Distribution(shape=shape, **numbers)
    _check(distribution)
    return distribution


def has_limits(shape: str) -> bool:
    """Whether a distribution has `min` and `max`; the others have defaults for their arguments."""
    return not shape.endswith(("normal", "beta"))


def _check(d: Distribution) -> None:
    kind = d.shape.removeprefix("q_")
    if d.q is not None and d.q <= 0:
        raise DefinitionError(f"q is {d.q}: it must be greater than 0")
    if not (0 < d.a <= LARGEST and 0 < d.b <= LARGEST):
        raise DefinitionError(
            f"a is {d.a}, b is {d.b}: both must be greater than 0, at most {LARGEST:g}"
        )
    if kind.endswith("normal"):
        if d.sigma < 0 or (kind == "log_normal" and d.sigma == 0):
            raise DefinitionError(f"sigma is {d.sigma}: it must be greater than 0")
        if kind == "log_normal" and abs(d.mu) + 10 * d.sigma > _LARGEST_EXPONENT:
            raise DefinitionError(
                "log_normal takes mu and sigma of the logarithm: these are too large"
            )
        return
    if d.min > d.max:
        raise DefinitionError(f"min {d.min} is greater than max {d.max}")
    if kind == "int_uniform" and not (d.min == int(d.min) and d.max == int(d.max)):
        raise DefinitionError(f"int_uniform needs whole numbers, not {d.min} and {d.max}")
    if kind.endswith("log_uniform_values") and d.min <= 0:
        raise DefinitionError(f"min is {d.min}: it must be greater than 0 for a logarithm")
    if kind.endswith("log_uniform") and max(abs(d.min), abs(d.max)) > _LARGEST_EXPONENT:
        raise DefinitionError(
            f"{d.shape} takes exponents of e, and e to the {d.max:g} is too large:"
            f" {d.shape}_values takes the values themselves"
        )


def _number(name: str, value: object) -> Number:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise DefinitionError(f"{name} is {value!r}: it must be a number")
    return value
