"""A head without GPUs and two nodes with one GPU each, over a fake executor."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.engine.adoption import revive
from stoker.engine.cluster_gpus import ClusterGpus
from stoker.engine.nodes import Nodes
from stoker.executors.contract import Synced
from stoker.executors.multi_node_executor import MultiNodeExecutor
from stoker.executors.node_reports import (
    Away,
    Introduction,
    Joined,
    LeaseExpired,
    NodeReport,
    NodeSlot,
    Reachable,
)
from unit.engine.engine_harness import Harness

OUT = "h1 was cut off for longer than its lease of 30s"


class Fleet(MultiNodeExecutor):
    """Notes which attempts a node is asked for."""

    def __init__(self) -> None:
        self.wanted: list[list[str]] = []

    def add_node(self, node: str, name: str) -> str:
        return name

    def forget(self, name: str) -> None:
        pass

    def connect(self, name: str, wanted: Sequence[str]) -> None:
        assert name == "h1"
        self.wanted.append(sorted(wanted))


class Cluster:
    """A head without GPUs, and the nodes h1 and h2 with one GPU each."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.fleet = Fleet()
        self.begin()
        for number in (1, 2):
            slots = (NodeSlot(("0",), ("GPU-0",)),)
            self.report(
                Joined(Introduction(id=f"n{number}", name=f"h{number}", version="1", slots=slots))
            )

    def begin(self) -> None:
        """Be the next daemon."""
        harness = self.harness
        engine, context = harness.engine, harness.context
        self.nodes = Nodes(
            engine,
            context.database,
            ClusterGpus(engine.slot_table),
            self.fleet,
            context.publisher.on_notice,
            lambda attempt: revive(engine, context.jobs, str(harness.home), attempt, harness.now),
        )
        context.nodes = self.nodes
        self.nodes.remember()

    def report(self, *reports: NodeReport) -> None:
        for report in reports:
            self.nodes.apply(report)
        self.harness.settle()

    def cut(self) -> None:
        """Let h1 be cut off for longer than its lease."""
        self.report(self.away(), LeaseExpired("h1", OUT))

    def away(self) -> Away:
        """Return the report that h1 does not answer."""
        return Away("h1", "it does not answer")

    def come_back(self) -> list[str]:
        """Let h1 answer again. Returns the attempts that it is asked for."""
        self.report(Reachable("h1"))
        return self.fleet.wanted[-1]

    def sync(self, *keys: str) -> None:
        """Let the supervisor of h1 report the end of its list."""
        self.harness.executor.report(Synced(frozenset(keys), fresh=True, node="h1"))
        self.harness.settle()

    def running(self) -> dict[str, str]:
        """The nodes of the running attempts."""
        return {key: each.where for key, each in self.harness.engine.slot_table.running.items()}
