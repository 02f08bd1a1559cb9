"""Planning of a sweep: from a definition to its runs. Entry point for the command line and Python."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stoker.core.wandb_params import WANDB_GROUPS
from stoker.errors import UsageError
from stoker.sweeps.cell import Cell
from stoker.sweeps.count import check_size, count_runs
from stoker.sweeps.definition import Definition, read_definition
from stoker.sweeps.expand import Expansion
from stoker.sweeps.identity import Namer, safe_label
from stoker.sweeps.objective import Metric
from stoker.sweeps.parameters import plain
from stoker.sweeps.space import Method
from stoker.sweeps.template import RunFacts
from stoker.sweeps.tree import Map, as_tree
from stoker.warm.command import AUTO, why_cold


class Run(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run of a sweep: its parameters, its command and its own folder."""

    index: int
    identity: str
    command: str
    id: str
    dir: str
    params_json: str
    cells: dict[str, Cell]
    is_shared: bool = False  # other runs have the same command: it passes no parameters

    @property
    def own_command(self) -> str:
        """The command, with a comment if other runs have the same: in the foreground it names the run."""
        return f"{self.command} # {self.id}" if self.is_shared else self.command

    @property
    def params(self) -> dict[str, Any]:
        """The parameters, in the order of the definition."""
        return {name: cell.value for name, cell in self.cells.items()}


class SweepSource(msgspec.Struct, frozen=True):
    """What a sweep was planned from: the keys of a sweep file, and the parameters that override it."""

    definition: dict[str, Any]
    words: list[str]
    portable: bool


class Sweep:
    """A checked sweep. It can be iterated repeatedly; its runs are made on the fly."""

    def __init__(
        self, definition: Definition, base: str, source: SweepSource, *, portable: bool = False
    ) -> None:
        self._definition = definition
        self.source = source
        self.name = definition.name  # also the project of its jobs
        self.command = definition.template.text
        self.resources = definition.resources
        self._warm = definition.warm
        groups = definition.wandb_groups
        self.variables = {} if groups is None else {WANDB_GROUPS: ",".join(groups)}
        self.metrics = definition.metrics
        self.stop_rule = definition.stop_rule
        self.space = definition.space
        self.varied = definition.space.varied()
        self.passes_parameters = bool(definition.template.fields or not definition.space.names)
        self._portable = portable
        self.base = base  # the folder of the submission
        self.count, expansion = count_runs(definition.space)
        self.notes = [*definition.notes, *self._remarks(expansion)]
        if not self.count:
            raise UsageError("the excludes and conditions leave no run: exclude less")

    @property
    def is_warm_by_default(self) -> bool:
        """Whether the definition leaves warm starts open, and the runs are plain python commands."""
        if self._warm is not None:
            return False
        first = next(iter(self), None)
        return first is not None and why_cold(None, os.fsencode(first.command)) is None

    @property
    def warm(self) -> tuple[str, ...]:
        """The modules that a warm worker imports for the runs; `auto` by default."""
        return (AUTO,) if self.is_warm_by_default else self._warm or ()

    @property
    def root(self) -> str:
        """The folder that contains the folders of all runs."""
        path = os.path.join(self.base, self._definition.dir).replace("{name}", self.name)
        return os.path.dirname(path.partition("{")[0] + "x")

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Run]:
        return self.runs()

    @property
    def metric(self) -> Metric | None:
        """The metric that compares its runs; of several the first."""
        return self.metrics[0] if self.metrics else None

    @property
    def is_adaptive(self) -> bool:
        """Whether its parameters are chosen one run after the other, by the results so far."""
        return self.space.method is Method.TPE

    @property
    def is_watched(self) -> bool:
        """Whether the reports of its runs decide on its course while it runs."""
        has_target = any(metric.target is not None for metric in self.metrics)
        return self.is_adaptive or self.stop_rule is not None or has_target

    def runs(self) -> Iterator[Run]:
        """Yield all runs, one at a time, always in the same order; of an adaptive method examples."""
        make = self._maker()
        for index, point in enumerate(Expansion(self.space)):
            yield make(index, point, "")

    def trial(self, number: int, point: dict[str, Cell], study: str) -> Run:
        """Return the run of a trial of a study, with an identity of its own."""
        return self._maker()(number, point, f"{study}/{number}")

    def _maker(self) -> Callable[[int, dict[str, Cell], str], Run]:
        """Return the function that makes a run of a point."""
        template, namer = self._definition.template, Namer(self.command, self.varied)
        fill = template.fill_portably if self._portable else template.fill
        identify, name = namer.identity, namer.folder
        write_params = namer.params
        place = self._placer()
        is_shared = not self.passes_parameters

        def make(index: int, point: dict[str, Cell], trial: str) -> Run:
            params = write_params(point)
            identity = identify(params, trial)
            own = name(point, identity)
            folder = place(own, point)
            return Run(
                index=index,
                identity=identity,
                command=fill(RunFacts(point, params, own, folder, index)),
                id=own,
                dir=folder,
                params_json=params,
                cells=point,
                is_shared=is_shared,
            )

        return make

    def _placer(self) -> Callable[[str, dict[str, Cell]], str]:
        """Return the function that gives a run its folder."""
        path = os.path.join(self.base, self._definition.dir)
        texts = re.split(r"\{([^{}]*)\}", path)  # names at odd positions
        texts[1::2] = [f"\0{name}" for name in texts[1::2]]
        filled = "".join(texts).replace("\0name", self.name)
        before, _mark, after = filled.partition("\0id")
        if "\0" not in before + after:
            return lambda own, _point: f"{before}{own}{after}"

        def place(own: str, point: dict[str, Cell]) -> str:
            known = {f"\0{name}": safe_label(cell) for name, cell in point.items()}
            known |= {"\0id": own, "\0name": self.name}
            return "".join([known.get(text, text) for text in texts])

        return place

    def _remarks(self, expansion: Expansion | None) -> Iterator[str]:
        space = self.space
        if expansion is not None and expansion.duplicates:
            many = expansion.duplicates
            what = "1 run was" if many == 1 else f"{many:,} runs were"
            yield f"{what} dropped because another run is the same"
        if expansion is not None and expansion.missing:
            yield f"only {self.count} different runs exist, but {space.samples} samples were requested"
        capped = space.method is Method.GRID and space.samples is not None
        if capped and not any(block.draws for block in space.blocks):
            yield f"a grid without distributions: its first {space.samples} runs are taken"


def plan_sweep(
    definition: Mapping[str, Any],
    overrides: Sequence[str] = (),
    base: str | None = None,
    *,
    portable: bool = False,
) -> Sweep:
    """Check a sweep completely; raise UsageError for the first error, with its line in the file.

    `definition` has the keys of a sweep file; `overrides` are typed parameters (`lr=1,2`). The runs' folders
    are below `base`, by default the current folder. In `portable` commands the folder is not written out:
    it is read from the run's environment, on any machine.
    """
    tree = as_tree(definition)
    assert isinstance(tree, Map)
    checked = read_definition(tree, overrides)
    check_size(checked.space)
    source = SweepSource({**plain(tree), "name": checked.name}, list(overrides), portable)
    return Sweep(checked, os.getcwd() if base is None else base, source, portable=portable)
