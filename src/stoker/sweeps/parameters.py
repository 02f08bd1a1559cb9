"""Parser of `parameters:` of a sweep file into blocks of dimensions."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from stoker.sweeps.cell import make_cell
from stoker.sweeps.conditions import Condition
from stoker.sweeps.distributions import (
    ALIASES,
    SHAPES,
    Distribution,
    has_limits,
    make_distribution,
)
from stoker.sweeps.functions import Result, Zipped, call
from stoker.sweeps.inline import read_call
from stoker.sweeps.space import Axis, Dimension, Draw, check_parameter
from stoker.sweeps.tree import DefinitionError, Map, Seq, did_you_mean

_NUMBERS = ("min", "max", "mu", "sigma", "q")
_BETA = ("a", "b")
_KEYS = ("value", "values", *_NUMBERS, "distribution", "probabilities")
_KNOWN = (*_KEYS, "parameters", "when")
_NAMED_VALUES = ("constant", "categorical", "categorical_w_probabilities")


class Reader:
    """Makes dimensions of entries. `notes` lists what was corrected, `groups` the nested parameters."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.groups: dict[str, None] = {}

    def block(self, tree: Map, prefix: str = "", when: str | None = None) -> list[Dimension]:
        """Return the dimensions of one block."""
        found: list[Dimension] = []
        for key, entry in tree.items():
            try:
                if key == "zip" and isinstance(entry, Map):
                    found.append(self._zip(entry, prefix, when))
                else:
                    found += self._entry(f"{prefix}{key}", entry, when)
            except DefinitionError as error:
                tree.fail(key, f"{key}: {error}")
        seen: set[str] = set()
        for name in (name for each in found for name in each.names):
            if name in seen:
                last = name.removeprefix(prefix)
                tree.fail(last if last in tree else "zip", f"the parameter {name} is there twice")
            seen.add(name)
        return found

    def _entry(self, name: str, entry: Any, when: str | None) -> list[Dimension]:
        if not isinstance(entry, Map):
            return [self.dimension(tuple(name.split(",")), _values_of(entry), _condition(when))]
        if "when" in entry:
            own = entry["when"]
            if not isinstance(own, str):
                raise DefinitionError(f"when takes a condition like opt.name == 'sgd', not {own!r}")
            when = own if when is None else f"({when}) and ({own})"
        is_beta = entry.get("distribution") in ("beta", "q_beta")
        for key in entry:
            if key not in _KNOWN and not (is_beta and key in _BETA):
                near = difflib.get_close_matches(key, _KNOWN, n=1)
                hint = f"did you mean '{near[0]}'?" if near else "nested ones go under parameters:"
                entry.fail(key, f"unknown key '{key}' of the parameter {name}: {hint}")
        if "parameters" in entry:
            nested = entry["parameters"]
            if not isinstance(nested, Map) or any(key in entry for key in _KEYS):
                raise DefinitionError(
                    "nested parameters are a mapping, and have no values beside them"
                )
            self.groups[name] = None
            return list(self.block(nested, f"{name}.", when))
        return [self._described(name, entry, _condition(when))]

    def _described(self, name: str, entry: Map, when: Condition | None) -> Dimension:
        shape = entry.get("distribution")
        if shape is not None and shape not in (*SHAPES, *ALIASES, *_NAMED_VALUES):
            known = [*SHAPES, *ALIASES, *_NAMED_VALUES]
            entry.fail(
                "distribution", f"no distribution {shape!r}: {did_you_mean(str(shape), known)}"
            )
        numbers = {k: entry[k] for k in (*_NUMBERS, *_BETA) if k in entry}
        has_defaults = shape is not None and not has_limits(shape) and shape not in _NAMED_VALUES
        if sum([("value" in entry), ("values" in entry), bool(numbers) or has_defaults]) != 1:
            raise DefinitionError("it needs one of value, values, min and max, mu and sigma")
        if numbers or has_defaults:
            if shape in _NAMED_VALUES:
                raise DefinitionError(f"{shape} takes values, not {', '.join(numbers)}")
            distribution = make_distribution(shape or _usual_shape(numbers), numbers)
            return self.dimension((name,), distribution, when)
        if "value" in entry:
            return self.dimension((name,), [plain(entry["value"])], when)
        values = entry["values"]
        if not isinstance(values, (Seq, str)):
            raise DefinitionError(f"values must be a list, not {plain(values)!r}")
        weights = entry.get("probabilities")
        return self.dimension((name,), _values_of(values), when, weights)

    def _zip(self, entry: Map, prefix: str, when: str | None) -> Dimension:
        columns = [_values_of(column) for column in entry.values()]
        for key, column in zip(entry, columns, strict=True):
            if not isinstance(column, Sequence):
                entry.fail(key, f"zip: {key} is not a list")
        names = tuple(f"{prefix}{key}" for key in entry)
        return self.dimension(names, Zipped(tuple(columns)), _condition(when))  # type: ignore[arg-type]

    def dimension(
        self,
        names: tuple[str, ...],
        values: Result,
        when: Condition | None = None,
        weights: Any = None,
    ) -> Dimension:
        """Make a dimension of one parameter, or of several zipped ones; may raise DefinitionError."""
        for name in names:
            check_parameter(name)
        if isinstance(values, Distribution):
            if len(names) > 1:
                raise DefinitionError("several names need zip")
            return Draw((names[0],), values, when)
        if isinstance(values, Zipped):
            values = _rows(names, values)
        elif len(names) > 1:
            raise DefinitionError("several names need zip([1, 2], [3, 4])")
        if not values:
            raise DefinitionError("it has no values")
        kept, chances = self._distinct(names, values, _check_weights(weights, values))
        return Axis(names, kept, when=when, weights=chances)

    def _distinct(
        self, names: tuple[str, ...], values: Sequence[Any], weights: list[float] | None
    ) -> tuple[Sequence[Any], tuple[float, ...] | None]:
        if isinstance(values, range):
            return values, None
        first: dict[str, int] = {}
        chances: list[float] = []
        kept: list[Any] = []
        for place, value in enumerate(values):
            key = make_cell(list(value) if isinstance(value, tuple) else value).json
            chance = weights[place] if weights else 0.0
            if key in first:
                chances[first[key]] += chance
                continue
            first[key] = len(kept)
            kept.append(value)
            chances.append(chance)
        if len(kept) < len(values):
            twice = len(values) - len(kept)
            self.notes.append(f"{','.join(names)}: {twice} value{'s' * (twice > 1)} given twice")
        return kept, tuple(chances) if weights else None


def list_values(dimension: Dimension) -> Dimension:
    """Return an axis of the values of an int_uniform or q_uniform; other dimensions as they are."""
    if not isinstance(dimension, Draw):
        return dimension
    d = dimension.distribution
    if d.shape == "int_uniform":
        values: Any = range(int(d.min), int(d.max) + 1)
    elif d.shape == "q_uniform":
        values = call("range", [d.min, d.max, d.q], {})
    else:
        return dimension
    return Axis(dimension.names, values, when=dimension.when)


def plain(tree: Any) -> Any:
    """Convert a tree to plain values."""
    if isinstance(tree, Map):
        return {key: plain(entry) for key, entry in tree.items()}
    if isinstance(tree, Seq):
        return [plain(item) for item in tree]
    return tree


def _values_of(entry: Any) -> Result:
    if isinstance(entry, Seq):
        return [plain(item) for item in entry]
    if isinstance(entry, str):
        called = read_call(entry)
        if called is not None:
            return called
    if isinstance(entry, Map):
        raise DefinitionError("write a mapping as a value in the form {value: {…}}")
    return [entry]


def _usual_shape(numbers: dict[str, Any]) -> str:
    """Return the distribution that W&B uses if none is named."""
    if "mu" in numbers or "sigma" in numbers:
        return "q_normal" if "q" in numbers else "normal"
    whole = all(type(numbers.get(key)) is int for key in ("min", "max"))
    if "q" in numbers:
        return "q_uniform"
    return "int_uniform" if whole else "uniform"


def _rows(names: tuple[str, ...], zipped: Zipped) -> list[tuple[Any, ...]] | Sequence[Any]:
    lengths = {len(column) for column in zipped.columns}
    if len(lengths) > 1:
        lengths_text = ", ".join(
            f"{n} {len(c)}" for n, c in zip(names, zipped.columns, strict=False)
        )
        raise DefinitionError(f"the lists of a zip must have the same length: {lengths_text}")
    if len(names) != len(zipped.columns):
        raise DefinitionError(f"{len(names)} names, but {len(zipped.columns)} lists")
    if len(names) == 1:
        return zipped.columns[0]
    return list(zip(*zipped.columns, strict=True))


def _check_weights(weights: Any, values: Sequence[Any]) -> list[float] | None:
    if weights is None:
        return None
    numbers = all(type(w) in (int, float) and w >= 0 for w in weights)
    if not numbers or len(weights) != len(values) or not sum(weights):
        raise DefinitionError("probabilities must be numbers of at least 0, one for each value")
    return [weight / sum(weights) for weight in weights]


def _condition(text: str | None) -> Condition | None:
    return None if text is None else Condition(text)
