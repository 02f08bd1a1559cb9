"""The space of a sweep: the common model of sweep files and inline parameters."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from stoker.sweeps.cell import Cell, make_cell
from stoker.sweeps.conditions import Condition, Match
from stoker.sweeps.distributions import Distribution
from stoker.sweeps.tree import DefinitionError

Row = tuple[tuple[str, Cell], ...]

SEED = "seed"
BUILT_IN = frozenset(
    {"args", "args_json", "args_json_file", "args_no_boolean_flags", "args_no_hyphens", "dir"}
    | {"args_append_hydra", "args_no_equals", "args_override_hydra"}
    | {"hydra", "id", "index", "params_json"}
)
_NAME = re.compile(r"(?:\+\+?|~)?[^\W\d][\w.@/-]*")  # Hydra's + and ~ in W&B files
_KEPT_ROWS = 10_000


class Method(str, enum.Enum):
    """How runs are chosen from the space."""

    GRID = "grid"
    RANDOM = "random"
    TPE = "tpe"  # chosen one after the other, by the results so far


class Axis:
    """Values that are tried in turn, of one parameter or of several zipped ones."""

    def __init__(
        self,
        names: tuple[str, ...],
        values: Sequence[Any],
        *,
        when: Condition | None = None,
        weights: tuple[float, ...] | None = None,
    ) -> None:
        """Make an axis. Each of `values` is a value for one name, or a tuple of values for several."""
        self.names = names
        self.values = values
        self.when = when
        self.weights = weights
        # The rows of a very long range are made on the fly.
        self._rows = None if len(values) > _KEPT_ROWS else [self._make(value) for value in values]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows) if self._rows is not None else map(self._make, self.values)

    def __getitem__(self, place: int) -> Row:
        return self._rows[place] if self._rows is not None else self._make(self.values[place])

    def _make(self, value: Any) -> Row:
        if len(self.names) == 1:
            return ((self.names[0], make_cell(value)),)
        return tuple((name, make_cell(each)) for name, each in zip(self.names, value, strict=True))


class Draw(msgspec.Struct, frozen=True):
    """A parameter that is drawn from a distribution for every run."""

    names: tuple[str]
    distribution: Distribution
    when: Condition | None = None


Dimension = Axis | Draw


class Block(msgspec.Struct, frozen=True):
    """One product of dimensions. Parameters in a condition come before the conditional ones."""

    dimensions: tuple[Dimension, ...]

    @property
    def names(self) -> list[str]:
        """All parameters, including conditional ones."""
        return [name for each in self.dimensions for name in each.names]

    @property
    def axes(self) -> list[Axis]:
        """Dimensions with a list of values."""
        return [each for each in self.dimensions if isinstance(each, Axis)]

    @property
    def draws(self) -> list[Draw]:
        """Dimensions that are drawn from a distribution."""
        return [each for each in self.dimensions if isinstance(each, Draw)]


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """A union of blocks, and the rules that choose runs from it."""

    fixed: Row = ()
    blocks: tuple[Block, ...]
    exclude: tuple[Condition | Match, ...] = ()
    method: Method = Method.GRID
    samples: int | None = None
    seed: int = 0
    repeats: int | None = None

    @property
    def is_finite(self) -> bool:
        """Whether every combination can be visited once: no parameter is drawn or weighted."""
        return not any(
            isinstance(each, Draw) or each.weights is not None
            for block in self.blocks
            for each in block.dimensions
        )

    @property
    def names(self) -> list[str]:
        """Every parameter that a run can have, in the order of the definition."""
        found = [name for name, _cell in self.fixed]
        found += [name for block in self.blocks for name in block.names]
        return list(dict.fromkeys([*found, SEED] if self.repeats is not None else found))

    def varied(self) -> list[str]:
        """Return the parameters that are not the same in all runs."""
        seen: dict[str, set[str]] = {}
        for block in self.blocks:
            for each in block.dimensions:
                for place, name in enumerate(each.names):
                    few = isinstance(each, Axis) and len(each) == 1 and each.when is None
                    value = each[0][place][1].json if few and isinstance(each, Axis) else "…"
                    seen.setdefault(name, set()).update([value] if few else [value, ""])
        absent = {name for block in self.blocks for name in set(seen) - set(block.names)}
        # Fixed parameters are in no block; a repeated seed always varies.
        names = [name for name in seen if len(seen[name]) > 1 or name in absent]
        return [*names, SEED] if (self.repeats or 0) > 1 else names


def check_parameter(name: str) -> None:
    """Raise DefinitionError for a name that cannot be a placeholder."""
    if not _NAME.fullmatch(name):
        raise DefinitionError(f"'{name}' is not a parameter name: use letters, digits, _ . - / @")
    if name in BUILT_IN:
        raise DefinitionError(f"'{name}' is built in: give the parameter another name")


def order(dimensions: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """Sort axes before draws, and after the parameters in their conditions; raise on a cycle."""
    left, placed, own = list(dimensions), [], {n for each in dimensions for n in each.names}
    known: set[str] = set()
    while left:
        ready = [each for each in left if each.when is None or each.when.names & own <= known]
        if not ready:
            raise DefinitionError(
                f"the conditions of {', '.join(n for each in left for n in each.names)} depend on each other"
            )
        chosen = next((each for each in ready if isinstance(each, Axis)), ready[0])
        left.remove(chosen)
        placed.append(chosen)
        known.update(chosen.names)
    return tuple(placed)
