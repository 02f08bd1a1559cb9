"""One executor for several machines: this machine's supervisor and those of the nodes."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Mapping, Sequence

import msgspec

from stoker.cluster.settings import free_name
from stoker.core.slot import Slot
from stoker.executors.bridge_connection import BridgeConnection
from stoker.executors.bridge_orders import ForgetNode, WatchGpus
from stoker.executors.contract import (
    Ended,
    Launch,
    Lost,
    Refused,
    Report,
    Revoked,
    Started,
    Synced,
)
from stoker.executors.daemon_executor import DaemonExecutor
from stoker.executors.node_reports import (
    Away,
    GpusSampled,
    Introduction,
    Joined,
    Leaving,
    NodeChange,
    NodeReport,
    Reachable,
)
from stoker.executors.remote_executor import RemoteExecutor

_OVER = (Ended, Lost, Refused, Revoked)
_CONTEXTS_KNOWN = 256


class MultiNodeExecutor:
    """Implements the executor contract: each slot and each attempt belongs to one node.

    It also reports about nodes. Reports of one node come in order. When a node is reachable, it waits for
    `connect`. The node has joined once its supervisor has reported all it knows, and is away while there is
    no stream to it. Nodes go by their names here: no two have the same name.
    """

    def __init__(
        self, own: DaemonExecutor, own_name: str, bridge: BridgeConnection, scripts: str
    ) -> None:
        self.own = own
        self._own_name = own_name
        self._bridge = bridge
        self._scripts = scripts
        self._remote: dict[str, RemoteExecutor] = {}
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._facts: dict[str, Introduction] = {}
        self._slots: dict[int, Slot] = {}
        self._node_of: dict[str, str] = {}
        self._ended_at: dict[str, str] = {}
        self._contexts: dict[int, tuple[Mapping[str, str], str, str]] = {}
        self._watch_gpus = False
        self._poll = select.epoll()
        self._wakeup = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        for fd in (own.fileno(), bridge.fileno(), self._wakeup):
            self._poll.register(fd, select.EPOLLIN)

    def add_node(self, node: str, name: str) -> str:
        """Add a node by its id. Returns its name here: its own, with a number if another node has it."""
        if node not in self._names:
            name = free_name(name, {self._own_name, *self._ids})
            self._bridge.nodes[node] = name
            self._ids[name], self._names[node] = node, name
            if name not in self._remote:
                self._remote[name] = self._make_remote(name)
        return self._names[node]

    def _make_remote(self, name: str) -> RemoteExecutor:
        remote = RemoteExecutor(name, self._scripts)
        remote.define_slots([slot for slot in self._slots.values() if slot.node == name])
        for number, (env, cwd, shell) in self._contexts.items():
            remote.define_context(number, env, cwd, shell)
        return remote

    @property
    def pids(self) -> list[int]:
        """The pid of this machine's supervisor."""
        return self.own.pids

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._poll.fileno()

    def _at(self, node: str) -> DaemonExecutor | RemoteExecutor:
        return self._remote.get(node, self.own)

    def _of(self, key: str) -> DaemonExecutor | RemoteExecutor:
        return self._at(self._node_of.get(key, ""))

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Define each slot at its node."""
        self._slots |= {slot.index: slot for slot in slots}
        for slot in slots:
            self._at(slot.node).define_slots([slot])

    def define_context(self, number: int, env: Mapping[str, str], cwd: str, shell: str) -> None:
        """Remember a context for every node."""
        self._contexts[number] = (env, cwd, shell)
        if len(self._contexts) > _CONTEXTS_KNOWN:
            del self._contexts[next(iter(self._contexts))]
        for executor in (self.own, *self._remote.values()):
            executor.define_context(number, env, cwd, shell)

    def hold(self, slot: int, *, gather: bool = False) -> None:
        """Ask the node for leases."""
        self._at(self._slots[slot].node).hold(slot, gather=gather)
        self._wake()

    def release(self, slot: int, gpu_keys: Sequence[str]) -> None:
        """Give leases back to the node."""
        self._at(self._slots[slot].node).release(slot, gpu_keys)

    def reserve(self, leases: Mapping[str, float]) -> None:
        """Let this machine's supervisor keep leases; GPUs of other nodes are not reserved."""
        self.own.reserve(leases)

    def offer(self, slots: Sequence[Slot]) -> None:
        """Offer slots of this machine; attempts are launched ahead on this machine alone."""
        self.own.offer(slots)

    def launch(self, launches: Sequence[Launch]) -> None:
        """Send each node its launches, in one write."""
        shares: dict[str, list[Launch]] = {}
        for order in launches:
            node = self._slots[order.slots[0]].node if order.slots else order.node
            self._node_of[order.key] = node
            shares.setdefault(node, []).append(order)
        for node, share in shares.items():
            self._at(node).launch(share)
        self._wake()

    def observe(self) -> list[Report]:
        """Return the reports of all nodes and about them."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wakeup)
        reports = self.own.observe()
        node_reports = self._bridge.observe()
        if node_reports is None:
            self._bridge.send(WatchGpus(self._watch_gpus))
        for each in node_reports or ():
            reports += self._apply(each)
        for remote in self._remote.values():
            reports += self._observe_remote(remote)
        for report in reports:
            if isinstance(report, _OVER):
                self._ended_at[report.key] = self._node_of.pop(report.key, "")
        return reports

    def _observe_remote(self, remote: RemoteExecutor) -> list[Report]:
        had_stream = remote.is_attached
        reports: list[Report] = []
        for report in remote.observe():
            reports.append(report)
            if isinstance(report, Started | Ended | Lost | Refused):
                self._node_of[report.key] = remote.node
            elif isinstance(report, Synced):
                reports.append(Joined(self._facts[remote.node], remote.offset))
        if had_stream and not remote.is_attached:
            reports += (Away(remote.node, "the connection broke"), Reachable(remote.node))
        return reports

    def _apply(self, report: NodeReport) -> list[Report]:
        """Close streams according to a report of the bridge. Returns the report to pass on."""
        match report:
            case Joined():
                name = self.add_node(report.facts.id, report.facts.name)
                self._facts[name] = msgspec.structs.replace(report.facts, name=name)
                self._remote[name].offset = report.offset
                self._remote[name].detach()
                return [Reachable(name)]
            case NodeChange():
                known = self._names.get(report.node)
                if known is None:
                    return []
                if not isinstance(report, GpusSampled | Leaving):
                    self._remote[known].detach()  # epoll drops a closed descriptor by itself
                return [msgspec.structs.replace(report, node=known)]
        return [report]

    def connect(self, name: str, wanted: Sequence[str]) -> None:
        """Open a stream to a reachable node; it drops the logs and results of attempts not wanted."""
        if name not in self._ids:
            return  # it was forgotten
        stream = self._bridge.open_stream(self._ids[name])
        if stream is not None:
            self._remote[name].attach(stream, wanted)
            self._poll.register(stream, select.EPOLLIN)

    def _wake(self) -> None:
        """Have `observe` called: a remote executor without a stream answers by itself."""
        os.eventfd_write(self._wakeup, 1)

    def acknowledge(self, keys: Sequence[str]) -> None:
        """Let the supervisors forget ends."""
        shares: dict[str, list[str]] = {}
        for key in keys:
            shares.setdefault(self._ended_at.pop(key, ""), []).append(key)
        for node, share in shares.items():
            self._at(node).acknowledge(share)

    def revoke(self, key: str) -> None:
        """Take an attempt back."""
        self._of(key).revoke(key)

    def move(self, key: str, slots: tuple[int, ...] | None) -> None:
        """Free the slots of an attempt, or let it occupy these."""
        self._of(key).move(key, slots)

    def limit(self, key: str, mem_bytes: int) -> None:
        """Change the limit of a running attempt."""
        self._of(key).limit(key, mem_bytes)

    def signal(
        self, key: str, signum: int, grace_s: float | None = None, *, main_only: bool = False
    ) -> None:
        """Signal a tree."""
        self._of(key).signal(key, signum, grace_s, main_only=main_only)

    def kill(self, key: str) -> None:
        """Kill a tree."""
        self._of(key).kill(key)

    def watch(self, *, wanted: bool) -> None:
        """Set whether nodes without jobs sample their GPUs too."""
        if wanted != self._watch_gpus:
            self._watch_gpus = wanted
            self._bridge.send(WatchGpus(wanted))

    def forget(self, name: str) -> None:
        """Forget a node; its slots refuse everything from now on."""
        node = self._ids.pop(name, None)
        if node is not None:
            self._bridge.send(ForgetNode(node))
            self._bridge.nodes.pop(node, None)
            self._names.pop(node, None)
            self._remote[name].detach()

    def finish(self) -> None:
        """Ask this machine's supervisor for a report when nothing is left."""
        self.own.finish()

    def stop(self, kill: bool) -> list[Report]:
        """Stop all supervisors."""
        for remote in self._remote.values():
            remote.stop(kill)
        return self.own.stop(kill)

    def close(self) -> None:
        """Close all connections; jobs go on everywhere."""
        for remote in self._remote.values():
            remote.detach()
        self._bridge.close()
        self.own.close()
        self._poll.close()
        os.close(self._wakeup)
