"""The daemon's parts for a cluster: bridge, nodes and the GPUs of nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from stoker.cluster.ray_command import ray_environment
from stoker.cluster.ray_supervisor_control import ensure_ray_supervisor, has_other_ray
from stoker.cluster.settings import load_node, load_settings
from stoker.cluster.ssh.tunnel import ensure_tunnels
from stoker.core.node import NodeFacts
from stoker.engine.adoption import revive
from stoker.engine.cluster_gpus import ClusterGpus
from stoker.engine.config import Config
from stoker.engine.context import QueueContext
from stoker.engine.gpu_models import Model
from stoker.engine.nodes import Nodes
from stoker.engine.slots import SlotTable
from stoker.executors.bridge_connection import (
    BridgeConnection,
    ClusterRules,
    end_bridge_of_other_version,
    stop_bridge,
)
from stoker.executors.daemon_executor import DaemonExecutor
from stoker.executors.multi_node_executor import MultiNodeExecutor
from stoker.executors.node_reports import NodeReport


class Cluster:
    """Connects a daemon to the nodes of its cluster."""

    def __init__(self, home: str, address: str, rules: ClusterRules) -> None:
        self._home = home
        self._address = address
        self._rules = rules
        self.name = load_node(home).name
        settings = load_settings(home)
        self._labels = {} if settings is None else settings.labels
        self.fleet: MultiNodeExecutor
        self.gpus: ClusterGpus
        self.nodes: Nodes

    @classmethod
    def of(cls, home: str, address: str, config: Config) -> Cluster:
        """The cluster whose Ray is at this address, with the rules of the configuration."""
        limit_bytes = config.sync_limit_bytes or sys.maxsize
        return cls(
            home, address, ClusterRules(lease_s=config.lease_s, sync_limit_bytes=limit_bytes)
        )

    def extend(self, own: DaemonExecutor, queue: str) -> MultiNodeExecutor:
        """Make the executor of all nodes, with this machine's executor in it."""
        ensure_ray_supervisor(self._home)  # it does not survive a restart of the machine
        ensure_tunnels(self._home)
        if not has_other_ray(self._home):  # a new bridge could not use the Ray that runs
            end_bridge_of_other_version(self._home)
        env = ray_environment(self._home, os.environ)
        bridge = BridgeConnection(self._home, queue, self._address, self._rules, env)
        self.fleet = MultiNodeExecutor(own, self.name, bridge, os.path.join(self._home, "scripts"))
        return self.fleet

    def enter(self, context: QueueContext, own_models: Callable[[], dict[str, Model]]) -> None:
        """Add the recorded nodes to the engine; other nodes are added when they join."""
        engine, slot_table = context.engine, context.engine.slot_table
        slot_table.head = self.name
        slot_table.update_node(NodeFacts(self.name, self._labels))
        self.gpus = ClusterGpus(slot_table)
        self.gpus.on_notice = context.publisher.on_notice
        nodes = context.nodes = self.nodes = Nodes(
            engine,
            context.database,
            self.gpus,
            self.fleet,
            context.publisher.on_notice,
            lambda attempt: revive(engine, context.jobs, self._home, attempt, engine.clock()),
        )
        nodes.remember()

        def models() -> dict[str, Model]:
            remote = nodes.models().items()
            return own_models() | {key: Model(gpu.name, gpu.total_bytes) for key, gpu in remote}

        engine.gpus.watch(self.gpus, models)

    def on_report(self, report: NodeReport) -> None:
        """Apply a report about a node."""
        self.nodes.apply(report)

    def watch(self, *, wanted: bool) -> None:
        """Let nodes monitor their GPUs while the result is wanted."""
        self.fleet.watch(wanted=wanted or self.gpus.is_wanted)

    def close(self, slot_table: SlotTable) -> None:
        """Stop the bridge unless a job on another node needs it."""
        if all(slot_table.is_own(running.where) for running in slot_table.running.values()):
            stop_bridge(self._home)
