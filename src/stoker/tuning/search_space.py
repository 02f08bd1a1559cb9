"""The space of a sweep as parameters of Optuna.

A value of Optuna leads to values of the sweep and back, so that a study can be made again from the runs.
Distributions that Optuna lacks are searched by their quantile, a number between 0 and 1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol

import msgspec
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from stoker.sweeps.cell import Cell, make_cell
from stoker.sweeps.distributions import Distribution
from stoker.sweeps.space import Axis, Block, Dimension, Draw, Row, Space

Point = dict[str, Cell]

# More values than these are ordered by their position: one category for each would be learned too slowly.
_MOST_CATEGORIES = 16
_BLOCK = "(block)"  # no parameter has such a name
_BISECTIONS = 60


class Chooser(Protocol):
    """What chooses values: a trial of Optuna."""

    def suggest_float(
        self, name: str, low: float, high: float, *, step: None = None, log: bool = False
    ) -> float:
        """Choose a float."""

    def suggest_int(self, name: str, low: int, high: int) -> int:
        """Choose an integer; both limits are included."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Choose one of several values."""


class Parameter(msgspec.Struct, frozen=True):
    """A dimension of the space as one parameter of Optuna."""

    name: str
    distribution: BaseDistribution
    decode: Callable[[Any], Row]
    encode: Callable[[Mapping[str, Any]], Any]  # from the plain values of a run

    def choose(self, chooser: Chooser) -> Row:
        """Let a trial choose a value; return it as values of the sweep."""
        d = self.distribution
        if isinstance(d, FloatDistribution):
            return self.decode(chooser.suggest_float(self.name, d.low, d.high, log=d.log))
        if isinstance(d, IntDistribution):
            return self.decode(chooser.suggest_int(self.name, d.low, d.high))
        assert isinstance(d, CategoricalDistribution)
        return self.decode(chooser.suggest_categorical(self.name, d.choices))


class SearchSpace:
    """Lets trials choose points of a space."""

    def __init__(self, space: Space) -> None:
        self._space = space
        shared = _shared_names(space)
        self._parameters = [
            {id(each): _make(each, number, shared) for each in block.dimensions}
            for number, block in enumerate(space.blocks)
        ]

    def choose(self, chooser: Chooser) -> Point:
        """Let a trial choose a point. Asked again, the same trial gives the same point."""
        blocks = self._space.blocks
        number = 0
        if len(blocks) > 1:
            number = chooser.suggest_categorical(_BLOCK, range(len(blocks)))
        point = dict(self._space.fixed)
        for each in blocks[number].dimensions:
            if each.when is not None and not each.when.holds(point):
                continue
            if isinstance(each, Axis) and len(each) == 1:
                point.update(each[0])
            else:
                point.update(self._parameters[number][id(each)].choose(chooser))
        return point

    def is_excluded(self, point: Point) -> bool:
        """Whether the sweep excludes a point."""
        return any(condition.holds(point) for condition in self._space.exclude)

    def encode(
        self, params: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, BaseDistribution]] | None:
        """Return the values of Optuna of a run, with their distributions; None if it is not of this space."""
        for number, block in enumerate(self._space.blocks):
            found = self._encode_in(number, block, params)
            if found is not None:
                return found
        return None

    def _encode_in(
        self, number: int, block: Block, params: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, BaseDistribution]] | None:
        fixed = [name for name, _cell in self._space.fixed]
        names = {*fixed, *(n for each in block.dimensions for n in each.names if n in params)}
        needed = {n for each in block.dimensions if each.when is None for n in each.names}
        if names != set(params) or not needed <= names:
            return None
        values: dict[str, Any] = {}
        distributions: dict[str, BaseDistribution] = {}
        if len(self._space.blocks) > 1:
            values[_BLOCK] = number
            distributions[_BLOCK] = CategoricalDistribution(range(len(self._space.blocks)))
        for each in block.dimensions:
            if _is_constant(each) or not set(each.names) <= set(params):
                continue
            parameter = self._parameters[number][id(each)]
            try:
                value = parameter.encode(params)
                fits = parameter.distribution._contains(
                    parameter.distribution.to_internal_repr(value)
                )
            except (ValueError, TypeError, KeyError):
                return None
            if not fits:
                return None
            values[parameter.name] = value
            distributions[parameter.name] = parameter.distribution
        return values, distributions


def _is_constant(dimension: Dimension) -> bool:
    return isinstance(dimension, Axis) and len(dimension) == 1


def _shared_names(space: Space) -> set[str]:
    """Return the names that mean the same in every block: they are learned together."""
    seen: dict[str, set[str]] = {}
    for block in space.blocks:
        for each in block.dimensions:
            seen.setdefault(_label(each), set()).add(_identity(each))
    return {name for name, kinds in seen.items() if len(kinds) == 1}


def _label(dimension: Dimension) -> str:
    return ",".join(dimension.names)


def _identity(dimension: Dimension) -> str:
    if isinstance(dimension, Draw):
        return repr(dimension.distribution)
    return repr((dimension.values, dimension.weights))


def _make(dimension: Dimension, block: int, shared: set[str]) -> Parameter:
    label = _label(dimension)
    name = label if label in shared else f"{label} (block {block + 1})"
    if isinstance(dimension, Draw):
        return _make_draw(name, dimension)
    if dimension.weights is not None:
        return _make_weighted(name, dimension, dimension.weights)
    if len(dimension) > _MOST_CATEGORIES:
        return _make_ordinal(name, dimension)
    return _make_choice(name, dimension)


def _make_draw(name: str, draw: Draw) -> Parameter:
    own = draw.names[0]
    native = _native(draw.distribution)
    if native is not None:

        def decode(value: Any) -> Row:
            return ((own, make_cell(value)),)

        return Parameter(name, native, decode, lambda params: params[own])

    def from_quantile(u: Any) -> Row:
        return ((own, make_cell(draw.distribution.draw(_inside(u)))),)

    def to_quantile(params: Mapping[str, Any]) -> float:
        return _quantile_of(draw.distribution.draw, float(params[own]))

    return Parameter(name, FloatDistribution(0.0, 1.0), from_quantile, to_quantile)


def _native(d: Distribution) -> BaseDistribution | None:
    """Return the distribution of Optuna that is the same; None if there is none."""
    if d.shape == "uniform":
        return FloatDistribution(float(d.min), float(d.max))
    if d.shape == "log_uniform_values":
        return FloatDistribution(float(d.min), float(d.max), log=True)
    if d.shape == "int_uniform":
        return IntDistribution(int(d.min), int(d.max))
    return None


def _make_choice(name: str, axis: Axis) -> Parameter:
    rows = list(axis)
    cells = [row[0][1] for row in rows]
    keys: list[Any] = [",".join(cell.json for _name, cell in row) for row in rows]
    plain = [cell.value for cell in cells if type(cell.value) in (str, int, float)]
    if len(axis.names) == 1 and len(set(plain)) == len(rows):
        keys = plain  # as the user knows them
    by_key = dict(zip(keys, rows, strict=True))
    place = functools.partial(_place_of, axis)
    return Parameter(
        name,
        CategoricalDistribution(keys),
        lambda key: by_key[key],
        lambda params: keys[place(params)],
    )


def _make_ordinal(name: str, axis: Axis) -> Parameter:
    return Parameter(
        f"{name} (position)",
        IntDistribution(0, len(axis) - 1),
        lambda place: axis[place],
        functools.partial(_place_of, axis),
    )


def _make_weighted(name: str, axis: Axis, weights: Sequence[float]) -> Parameter:
    """A quantile over the weights: the likelier values are tried more often at first."""
    edges = list(accumulate(weights))

    def decode(u: float) -> Row:
        return axis[next((place for place, edge in enumerate(edges) if u < edge), len(axis) - 1)]

    def encode(params: Mapping[str, Any]) -> float:
        place = _place_of(axis, params)
        return edges[place] - weights[place] / 2

    return Parameter(name, FloatDistribution(0.0, 1.0), decode, encode)


def _place_of(axis: Axis, params: Mapping[str, Any]) -> int:
    """Return the position of a run's values in an axis; ValueError if they are not in it."""
    wanted = [make_cell(params[name]).json for name in axis.names]
    for place in range(len(axis)):
        if [cell.json for _name, cell in axis[place]] == wanted:
            return place
    raise ValueError(f"{wanted} is not a value of {axis.names}")


def _inside(u: float) -> float:
    """Return a quantile that is neither 0 nor 1: there a distribution may be infinite."""
    return min(max(u, 1e-9), 1.0 - 1e-9)


def _quantile_of(draw: Callable[[float], float], value: float) -> float:
    """Return the quantile of a value; of a rounded one the middle of those that lead to it."""
    rises = draw(_inside(1.0)) >= draw(_inside(0.0))
    first = _bisect(lambda u: (draw(u) >= value) if rises else (draw(u) <= value))
    behind = _bisect(lambda u: (draw(u) > value) if rises else (draw(u) < value))
    return (first + behind) / 2


def _bisect(is_behind: Callable[[float], bool]) -> float:
    """Return the least quantile for which a statement is true that stays true."""
    low, high = 0.0, 1.0
    for _step in range(_BISECTIONS):
        middle = (low + high) / 2
        if is_behind(_inside(middle)):
            high = middle
        else:
            low = middle
    return (low + high) / 2
