"""Where a job may run: on which nodes, and on which kinds of GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from stoker.core.node import NodeFacts

_KEPT = 1024


class PlacementRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a node and its GPUs must be for a job; anything, by default."""

    nodes: tuple[str, ...] = ()  # one of these
    on: str | None = None  # a part of the GPU model's name, however it is written
    labels: tuple[tuple[str, str], ...] = ()  # all of these

    def fits_node(self, node: NodeFacts) -> bool:
        """Whether the job may run on a node."""
        if self.nodes and node.name not in self.nodes:
            return False
        return all(node.labels.get(name) == value for name, value in self.labels)

    def fits_models(self, models: Iterable[str | None]) -> bool:
        """Whether the job may have GPUs of these kinds; one that nobody knows is none it asks for."""
        if self.on is None:
            return True
        wanted = self.on.lower()
        return all(model is not None and wanted in model.lower() for model in models)

    def __str__(self) -> str:
        """As one would type it."""
        words = [f"--node {','.join(self.nodes)}"] if self.nodes else []
        words += [] if self.on is None else [f"--on {self.on}"]
        return " ".join(words + [f"--node-label {name}={value}" for name, value in self.labels])


ANYWHERE = PlacementRule()
_decoder = msgspec.json.Decoder(PlacementRule)


def make_where(
    nodes: Iterable[str] | None, on: str | None, labels: Mapping[str, str] | None
) -> PlacementRule:
    """The same wish is always the same: in whatever order it was typed, and however often."""
    return PlacementRule(
        nodes=tuple(sorted(set(nodes or ()))),
        on=on,
        labels=tuple(sorted((labels or {}).items())),
    )


def write_where(where: PlacementRule) -> str | None:
    """A wish as text, by which jobs that have the same one are known; None for anywhere."""
    return None if where == ANYWHERE else msgspec.json.encode(where).decode()


@lru_cache(_KEPT)
def read_where(text: str | None) -> PlacementRule:
    """The same, read back."""
    return ANYWHERE if text is None else _decoder.decode(text)
