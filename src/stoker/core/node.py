"""A node: a machine of the cluster, as far as placing jobs cares."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

_NO_LABELS: Mapping[str, str] = {}


class NodeFacts(msgspec.Struct, frozen=True):
    """What is known of a node. `away` says why nothing can be started there now; None if it can be."""

    name: str
    labels: Mapping[str, str] = _NO_LABELS
    away: str | None = None
    since: float | None = None  # the time of day since which it is away


def split_label(label: str) -> tuple[str, str]:
    """The node and the GPUs that a slot's label names; a label from a single box names no node."""
    node, slash, gpus = label.partition("/")
    return (node, gpus) if slash else ("", label)


def gpus_in(labels: str) -> set[str]:
    """The GPUs that a list of labels names, each with its node: h1/0+1,h1/2 names h1/0, h1/1 and h1/2."""
    found = set()
    for label in labels.split(","):
        node, gpus = split_label(label)
        found |= {f"{node}/{gpu}" if node else gpu for gpu in gpus.split("+") if gpu}
    return found
