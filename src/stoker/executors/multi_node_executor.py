"""One executor over several machines: this one's supervisor, and those of the nodes."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
from collections.abc import Collection, Mapping, Sequence

import msgspec

from stoker.core.slot import Slot
from stoker.executors.bridge_connection import BridgeConnection
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
    Forget,
    Introduction,
    Joined,
    Leaving,
    News,
    Sighted,
    Told,
    Watch,
)
from stoker.executors.remote_executor import RemoteExecutor

_OVER = (Ended, Lost, Refused, Revoked)


class MultiNodeExecutor:
    """Keeps the executor contract: every slot is of a node, and every attempt on one.

    Reports also tell of nodes. Those of a node come in order; a node that has parted has no attempts.
    One is there once its supervisor has told all it knows, and away whenever it cannot be spoken with.
    """

    def __init__(
        self, own: DaemonExecutor, own_name: str, link: BridgeConnection, scripts: str
    ) -> None:
        self.own = own
        self._own_name = own_name
        self._link = link
        self._scripts = scripts
        self._far: dict[str, RemoteExecutor] = {}
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._facts: dict[str, Introduction] = {}
        self._slots: dict[int, Slot] = {}
        self._node_of: dict[str, str] = {}
        self._ended_at: dict[str, str] = {}
        self._contexts: dict[int, tuple[Mapping[str, str], str, str]] = {}
        self._wanted = False
        self._poll = select.epoll()
        self._poll.register(own.fileno(), select.EPOLLIN)
        self._poll.register(link.fileno(), select.EPOLLIN)
        self._bell = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._bell, select.EPOLLIN)

    def know(self, node: str, name: str) -> str:
        """Have a node; returns what it is called here, where no two have one name."""
        if node not in self._names:
            name = _distinct(name, {self._own_name, *self._ids})
            self._link.nodes[node] = name
            self._ids[name], self._names[node] = node, name
            if name not in self._far:
                self._far[name] = self._make_far(name)
        return self._names[node]

    def _make_far(self, name: str) -> RemoteExecutor:
        far = RemoteExecutor(name, self._scripts)
        far.define_slots([slot for slot in self._slots.values() if slot.node == name])
        for number, (env, cwd, shell) in self._contexts.items():
            far.define_context(number, env, cwd, shell)
        return far

    @property
    def pids(self) -> list[int]:
        """The own supervisor's."""
        return self.own.pids

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._poll.fileno()

    def _at(self, node: str) -> DaemonExecutor | RemoteExecutor:
        return self._far.get(node, self.own)

    def _of(self, key: str) -> DaemonExecutor | RemoteExecutor:
        return self._at(self._node_of.get(key, ""))

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Tell each node of its own."""
        self._slots |= {slot.index: slot for slot in slots}
        for slot in slots:
            self._at(slot.node).define_slots([slot])

    def define_context(self, number: int, env: Mapping[str, str], cwd: str, shell: str) -> None:
        """Remember it for every node."""
        self._contexts[number] = (env, cwd, shell)
        if len(self._contexts) > 256:
            del self._contexts[next(iter(self._contexts))]
        for executor in (self.own, *self._far.values()):
            executor.define_context(number, env, cwd, shell)

    def hold(self, slot: int) -> None:
        """Ask the node."""
        self._at(self._slots[slot].node).hold(slot)
        self._ring()

    def release(self, slot: int, gpu_keys: Sequence[str]) -> None:
        """Give back to the node."""
        self._at(self._slots[slot].node).release(slot, gpu_keys)

    def offer(self, slots: Sequence[Slot]) -> None:
        """Offer slots of this machine; attempts are launched ahead on this machine alone."""
        self.own.offer(slots)

    def launch(self, launches: Sequence[Launch]) -> None:
        """Send each node its share, in one write."""
        shares: dict[str, list[Launch]] = {}
        for order in launches:
            node = self._slots[order.slots[0]].node if order.slots else order.node
            self._node_of[order.key] = node
            shares.setdefault(node, []).append(order)
        for node, share in shares.items():
            self._at(node).launch(share)
        self._ring()

    def observe(self) -> list[Report]:
        """What has happened on all nodes, and to them."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        reports = self.own.observe()
        news = self._link.observe()
        if news is None:
            self._link.tell(Watch(self._wanted))
        for each in news or ():
            reports += self._hear(each)
        for far in self._far.values():
            reports += self._listen(far)
        for report in reports:
            if isinstance(report, _OVER):
                self._ended_at[report.key] = self._node_of.pop(report.key, "")
        return reports

    def _listen(self, far: RemoteExecutor) -> list[Report]:
        had_stream = far.is_attached
        reports: list[Report] = []
        for report in far.observe():
            reports.append(report)
            if isinstance(report, Started | Ended | Lost | Refused):
                self._node_of[report.key] = far.node
            elif isinstance(report, Synced):
                reports.append(Joined(self._facts[far.node], far.ahead))
        if had_stream and not far.is_attached:
            self._connect(far)
            reports.append(Away(far.node, "the connection broke"))
        return reports

    def _hear(self, news: News) -> list[Report]:
        """What becomes of the streams when something becomes of a node."""
        match news:
            case Joined():
                called = self.know(news.facts.id, news.facts.name)
                self._facts[called] = msgspec.structs.replace(news.facts, name=called)
                self._far[called].ahead = news.ahead
                self._connect(self._far[called])
                return []
            case Told():
                return [news]
        name = self._names.get(news.node)
        if name is None:
            return []
        if not isinstance(news, Sighted | Leaving):
            self._far[name].detach()  # a closed descriptor leaves the set by itself
        return [msgspec.structs.replace(news, node=name)]

    def _connect(self, far: RemoteExecutor) -> None:
        far.detach()
        stream = self._link.open_stream(self._ids[far.node])
        if stream is not None:
            far.attach(stream)
            self._poll.register(stream, select.EPOLLIN)

    def _ring(self) -> None:
        """Have `observe` called: some answers are found here."""
        os.eventfd_write(self._bell, 1)

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

    def signal(self, key: str, signum: int, grace_s: float | None = None) -> None:
        """Signal a tree."""
        self._of(key).signal(key, signum, grace_s)

    def kill(self, key: str) -> None:
        """Kill a tree."""
        self._of(key).kill(key)

    def watch(self, *, wanted: bool) -> None:
        """Say whether anybody wants to know how the nodes' GPUs are."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._link.tell(Watch(wanted))

    def forget(self, name: str) -> None:
        """Expect a node no more; what is asked of it is refused."""
        node = self._ids.pop(name, None)
        if node is not None:
            self._link.tell(Forget(node))
            self._link.nodes.pop(node, None)
            self._names.pop(node, None)
            self._far[name].detach()

    def finish(self) -> None:
        """Ask this machine's supervisor."""
        self.own.finish()

    def stop(self, kill: bool) -> list[Report]:
        """Let the supervisors go."""
        for far in self._far.values():
            far.stop(kill)
        return self.own.stop(kill)

    def close(self) -> None:
        """Let go; what runs goes on everywhere."""
        for far in self._far.values():
            far.detach()
        self._link.close()
        self.own.close()
        self._poll.close()
        os.close(self._bell)


def _distinct(name: str, taken: Collection[str]) -> str:
    """A name that no other node has: its own, or with a number behind it."""
    names = (name if count == 1 else f"{name}-{count}" for count in itertools.count(1))
    return next(each for each in names if each not in taken)
