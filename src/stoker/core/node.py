"""A node: one machine of the cluster, as the planner sees it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

_NO_LABELS: Mapping[str, str] = {}


class NodeFacts(msgspec.Struct, frozen=True):
    """Facts about a node. `away` says why it cannot be reached; None if it can."""

    name: str
    labels: Mapping[str, str] = _NO_LABELS
    away: str | None = None
    since: float | None = None  # Unix time since which it is away
    lacks: str | None = None  # why no job starts there for a while, although it answers
    cpus: int | None = None  # that its jobs may use
    mem_bytes: int | None = None  # all of its RAM
    drained: str | None = None  # why a user lets no job start there; may be empty

    @property
    def is_open(self) -> bool:
        """Whether jobs can start there now."""
        return self.away is None and self.lacks is None and self.drained is None

    @property
    def why_drained(self) -> str | None:
        """The drain in words; None if it is not drained."""
        if self.drained is None:
            return None
        return f"is drained ({self.drained})" if self.drained else "is drained"


def split_label(label: str) -> tuple[str, str]:
    """Split a slot label into node and GPUs; the node is empty on a single machine."""
    node, slash, gpus = label.partition("/")
    return (node, gpus) if slash else ("", label)


def gpus_in(labels: str) -> set[str]:
    """Return the GPUs in a list of labels, each with its node: h1/0+1,h1/2 gives h1/0, h1/1 and h1/2."""
    found = set()
    for label in labels.split(","):
        node, gpus = split_label(label)
        found |= {f"{node}/{gpu}" if node else gpu for gpu in gpus.split("+") if gpu}
    return found
