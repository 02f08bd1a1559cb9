"""What a daemon has in addition where its queue reaches over several machines."""

from __future__ import annotations

import os
from collections.abc import Callable

from stoker.cluster.command import ray_environment
from stoker.cluster.settings import load_node, load_settings
from stoker.core.node import NodeFacts
from stoker.engine.board import Board
from stoker.engine.config import Config
from stoker.engine.hub import Hub
from stoker.engine.lookout import Lookout
from stoker.engine.nodes import Nodes
from stoker.engine.sharing import Model
from stoker.engine.vista import Vista
from stoker.executors.fleet import FleetExecutor
from stoker.executors.kept import KeptExecutor
from stoker.executors.link import Link, dismiss


class Cluster:
    """Joins the bridge to other machines with the parts of a daemon."""

    def __init__(self, home: str, address: str, lease_s: float) -> None:
        self._home = home
        self._address = address
        self._lease_s = lease_s
        self.name = load_node(home).name
        settings = load_settings(home)
        self._labels = {} if settings is None else settings.labels
        self.fleet: FleetExecutor
        self.lookout: Lookout

    @classmethod
    def of(cls, home: str, config: Config) -> Cluster | None:
        """The cluster that a queue is set to reach over; None if to none."""
        address = config.ray_address
        if address is None:
            dismiss(home)  # from a cluster that was left
            return None
        return cls(home, address, config.lease_s)

    def extend(self, own: KeptExecutor, queue: str) -> FleetExecutor:
        """This machine's executor, and with it those of all nodes."""
        env = ray_environment(self._home, os.environ)
        link = Link(self._home, queue, self._address, self._lease_s, env)
        self.fleet = FleetExecutor(own, self.name, link, os.path.join(self._home, "scripts"))
        return self.fleet

    def enter(self, hub: Hub, own_models: Callable[[], dict[str, Model]]) -> None:
        """Let the engine know of nodes: those on record at once, others as they come."""
        engine, board = hub.engine, hub.engine.board
        board.head = self.name
        board.note_node(NodeFacts(self.name, self._labels))
        vista = Vista(board)
        vista.on_notice = hub.publisher.on_notice
        self.lookout = Lookout(vista)
        nodes = engine.nodes = Nodes(
            engine, hub.database, vista, self.fleet, hub.publisher.on_notice
        )
        nodes.remember()
        engine.follow(self.lookout)

        def models() -> dict[str, Model]:
            far = nodes.models().items()
            return own_models() | {key: Model(gpu.name, gpu.total_bytes) for key, gpu in far}

        assert engine.sharing is not None
        engine.sharing.watch(self.lookout.look, models)

    def watch(self, *, wanted: bool) -> None:
        """Have nodes look at their GPUs while it is of use."""
        self.fleet.watch(wanted=wanted or self.lookout.is_wanted)

    def close(self, board: Board) -> None:
        """Let the bridge go too where no job on a node has need of it."""
        if all(board.is_own(running.where) for running in board.running.values()):
            dismiss(self._home)
