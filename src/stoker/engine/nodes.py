"""Nodes of a cluster: applies what they report to the slot table, and records them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec

from stoker.core.durations import format_duration
from stoker.core.job import Attempt
from stoker.core.node import NodeFacts
from stoker.engine.cluster_gpus import ClusterGpus
from stoker.engine.engine import Engine
from stoker.engine.slots import SlotTable
from stoker.executors.multi_node_executor import MultiNodeExecutor
from stoker.executors.node_reports import (
    Away,
    ClockOffset,
    GpusSampled,
    Introduction,
    Joined,
    LeaseExpired,
    Leaving,
    Left,
    NodeGpu,
    NodeReport,
    Notice,
    Reachable,
)
from stoker.executors.remote_executor import remote_key
from stoker.store.database import Database
from stoker.store.named_values import NamedValues

_SKEW_S = 5
_SILENT = "it has not answered since this daemon began"


class Nodes:
    """Keeps the slots of all nodes up to date, and records the nodes for the next daemon."""

    def __init__(
        self,
        engine: Engine,
        database: Database,
        cluster_gpus: ClusterGpus,
        fleet: MultiNodeExecutor,
        tell: Callable[[str], None],
        revive: Callable[[Attempt], None],
    ) -> None:
        self._engine = engine
        self._slot_table: SlotTable = engine.slot_table
        self._records = NamedValues(database, "node.")
        self._drains = NamedValues(database, "drained_node.")
        self._cluster_gpus = cluster_gpus
        self._fleet = fleet
        self._tell = tell
        self._revive = revive
        assert engine.given_up is not None
        self._given_up = engine.given_up
        self.known: dict[str, Introduction] = {}

    def remember(self) -> None:
        """Add the recorded nodes. Nothing starts on them until they report."""
        for value in self._records.all().values():
            facts = msgspec.json.decode(value, type=Introduction)
            self._fleet.add_node(facts.id, facts.name)
            self._enter(facts, away=_SILENT)

    def apply(self, report: NodeReport) -> None:
        """Apply a report of a node."""
        match report:
            case Reachable():
                self._connect(report.node)
            case Joined():
                self._on_joined(report.facts, report.offset)
            case Away():
                self._on_away(report.node, report.reason)
            case LeaseExpired():
                self._on_away(report.node, report.reason)
                self._give_up(report.node, report.reason)
                self._forget_pilot(report.node)
            case Leaving():
                self._on_away(report.node, "it is leaving the cluster")
            case Left():
                self.forget(report.node)
            case GpusSampled():
                self._cluster_gpus.see(report.node, report.sample)
            case Notice():
                self._engine.tell_once(report.text)

    def drain(self, name: str, reason: str | None) -> None:
        """Let no job start on a node, inside a transaction; None lets jobs start there again."""
        if reason is None:
            self._drains.forget(name)
        else:
            self._drains.put(name, reason.encode())
        facts = self._slot_table.nodes.get(name)
        if facts is not None:
            self._slot_table.update_node(msgspec.structs.replace(facts, drained=reason))

    def is_drained(self, name: str) -> bool:
        """Whether no job may start on a node, which may have left."""
        return self._drains.get(name) is not None

    def _connect(self, name: str) -> None:
        """Let a node report its attempts.

        Jobs that wait have their attempts there again, which were given up: their ends count.
        """
        for attempt in self._given_up.current(name):
            self._given_up.discard(attempt.key)
            self._revive(attempt)
        self._fleet.connect(name, [running.key for running in self._engine.attempts_on(name)])

    def _give_up(self, name: str, reason: str) -> None:
        """Requeue the jobs of a node whose lease has expired, except those that go on without the head."""
        for running in self._engine.attempts_on(name):
            if not running.finishes_alone:
                self._given_up.add(running)
                self._engine.give_up(running, reason)

    def _forget_pilot(self, name: str) -> None:
        """Remove a pilot whose lease has expired: its like has a new id each time, so it does not return."""
        facts = self.known.get(name)
        if facts is not None and facts.is_pilot and not self._engine.attempts_on(name):
            self.forget(name)

    def forget(self, name: str) -> None:
        """Remove a node, inside a turn or transaction. Its jobs are over, or end with its lease."""
        facts = self.known.pop(name, None)
        if facts is None:
            return
        for running in self._engine.attempts_on(name):
            self._engine.give_up(running, f"{name} has left the cluster")
        self._given_up.keep_only(name, frozenset())
        self._fleet.forget(name)
        self._slot_table.forget_node(name)
        self._slot_table.links.set_node(name, {})
        self._cluster_gpus.forget(name)
        self._records.forget(facts.id)
        self._tell(f"{name} has left the cluster")

    def models(self) -> Mapping[str, NodeGpu]:
        """The models of the nodes' GPUs, by lease key."""
        return {
            remote_key(name, key): gpu
            for name, facts in self.known.items()
            for key, gpu in facts.gpus.items()
        }

    def _on_joined(self, facts: Introduction, offset: ClockOffset) -> None:
        before = self.known.get(facts.name)
        was_away = before is None or self._slot_table.nodes[facts.name].away is not None
        self._enter(facts, away=None)
        if facts != before:
            self._records.put(facts.id, msgspec.json.encode(facts))
        if was_away:
            gpus = sum(len(slot.gpus) for slot in facts.slots)
            what = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
            self._tell(f"{facts.name} is there, with {what}")
            if abs(offset.of_day_s) >= _SKEW_S:
                self._tell(_skewed(facts.name, offset.of_day_s))

    def _on_away(self, name: str, reason: str) -> None:
        facts = self._slot_table.nodes.get(name)
        if facts is None or facts.away not in {None, _SILENT}:
            return
        since = time.time()
        self._slot_table.update_node(msgspec.structs.replace(facts, away=reason, since=since))
        self._tell(f"{name} is away: {reason}")

    def _enter(self, facts: Introduction, away: str | None) -> None:
        self.known[facts.name] = facts
        since = None if away is None else time.time()
        drained = self._drains.get(facts.name)
        known = self._slot_table.nodes.get(facts.name, NodeFacts(facts.name))
        self._slot_table.update_node(
            msgspec.structs.replace(
                known,
                labels=facts.labels,
                away=away,
                since=since,
                cpus=facts.cpus,
                mem_bytes=facts.mem_bytes,
                drained=None if drained is None else drained.decode(),
            )
        )
        for slot in facts.slots:
            for key in slot.keys:
                if key in facts.gpus:
                    self._slot_table.models[remote_key(facts.name, key)] = facts.gpus[key].name
        links = {
            frozenset((remote_key(facts.name, one), remote_key(facts.name, other))): link
            for one, other, link in facts.links
        }
        self._slot_table.links.set_node(facts.name, links)
        self._fit(facts)

    def _fit(self, facts: Introduction) -> None:
        """Add and retire slots until they are those of the node. Another GPU is another slot."""
        name = facts.name
        wanted = [
            (slot.gpus, tuple(remote_key(name, key) for key in slot.keys)) for slot in facts.slots
        ]
        for state in [*self._slot_table.by_node.get(name, ())]:
            if state.whole_slot is not None:
                continue
            has = (state.slot.gpus, state.slot.keys)
            if has in wanted:
                wanted.remove(has)
            else:
                self._slot_table.retire(state)
        for gpus, keys in wanted:
            if not self._slot_table.restore(gpus, keys, name):
                self._engine.add_slot(gpus, keys, name)


def _skewed(name: str, behind_s: int) -> str:
    """Warn about a clock that is wrong, here or on the node."""
    which = "behind" if behind_s > 0 else "ahead of"
    return (
        f"the clock of {name} is {format_duration(abs(behind_s))} {which} this machine's: the times of"
        " its jobs are told by this machine's clock, but files have those of the node; NTP sets both right"
    )
