"""Placement rules: the nodes and GPU models that a job may run on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from stoker.core.node import NodeFacts

_KEPT = 1024


class PlacementRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Conditions on a node and its GPUs. The default accepts all."""

    nodes: tuple[str, ...] = ()  # names, one of which must match
    on: str | None = None  # part of the GPU model's name; case does not matter
    labels: tuple[tuple[str, str], ...] = ()  # labels, all of which must match

    def fits_node(self, node: NodeFacts) -> bool:
        """Whether the job may run on this node."""
        if self.nodes and node.name not in self.nodes:
            return False
        return all(node.labels.get(name) == value for name, value in self.labels)

    def fits_models(self, models: Iterable[str | None]) -> bool:
        """Whether the job may use GPUs of these models. An unknown model does not match a required one."""
        if self.on is None:
            return True
        wanted = self.on.lower()
        return all(model is not None and wanted in model.lower() for model in models)

    def __str__(self) -> str:
        """The rule as command-line options."""
        words = [f"--node {','.join(self.nodes)}"] if self.nodes else []
        words += [] if self.on is None else [f"--on {self.on}"]
        return " ".join(words + [f"--node-label {name}={value}" for name, value in self.labels])


ANYWHERE = PlacementRule()
_decoder = msgspec.json.Decoder(PlacementRule)


def make_where(
    nodes: Iterable[str] | None, on: str | None, labels: Mapping[str, str] | None
) -> PlacementRule:
    """Build a rule in canonical form: the order and repetition of the arguments do not matter."""
    return PlacementRule(
        nodes=tuple(sorted(set(nodes or ()))),
        on=on,
        labels=tuple(sorted((labels or {}).items())),
    )


def write_where(where: PlacementRule) -> str | None:
    """Encode a rule as JSON; equal rules have equal text. None means anywhere."""
    return None if where == ANYWHERE else msgspec.json.encode(where).decode()


@lru_cache(_KEPT)
def read_where(text: str | None) -> PlacementRule:
    """Decode the text of `write_where`."""
    return ANYWHERE if text is None else _decoder.decode(text)
