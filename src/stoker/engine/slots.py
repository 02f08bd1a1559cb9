"""Table of slots: their states by index and node, and the attempts on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from stoker.core.host_room import HostRooms
from stoker.core.node import NodeFacts
from stoker.core.planner import Busy, Candidate, Nodes
from stoker.core.slot import Slot
from stoker.engine.deadlines import Deadlines
from stoker.engine.host_resources import HostCapacity, HostResources
from stoker.engine.placement import PlacementCache
from stoker.engine.running_attempt import STARTING, ClaimedAhead, RunningAttempt
from stoker.engine.slot_index import SlotIndex
from stoker.engine.slot_links import SlotLinkCache
from stoker.engine.slot_state import REMOVED, ClosedBy, LeaseRequested, SlotState

_MAX_CLAIMED_AHEAD = 512


class SlotTable:
    """All slots of an engine, and all running attempts."""

    def __init__(
        self,
        slots: tuple[Slot, ...],
        *,
        cpu_places: int = 0,
        last_freed_first: bool = False,
        head: str = "",
        capacity: HostCapacity | None = None,
    ) -> None:
        self.states: list[SlotState] = []  # by the index of the slot, shared slots included
        self.shared: list[SlotState] = []  # the shared slots among them
        self.by_node: dict[str, list[SlotState]] = {}  # shared slots included, retired slots not
        self.index = SlotIndex(self.states)
        self._node_of: list[str] = []
        self._retired: dict[int, SlotState] = {}  # nodes no longer have them, but may again
        # The order in which free slots are filled; with `last_freed_first`, from its end.
        self._order: list[int] = []
        self._last_freed_first = last_freed_first
        self._drained: dict[
            str, str
        ] = {}  # recorded labels, also of nodes that have not joined yet
        self.nodes: dict[str, NodeFacts] = {}
        self.models: dict[str, str] = {}  # GPU models by lease key
        self.layout_version = 0  # grows when slots, nodes or models change
        self.head = head  # this machine's name in its cluster
        self.placement = PlacementCache(self)
        self.links = SlotLinkCache(self)
        self.hosts = HostResources(capacity)
        self.cpu_places = cpu_places
        self.most_to_come = 0  # slots of the largest node that the queue can ask for
        self.running: dict[str, RunningAttempt] = {}
        self.claimed_ahead: dict[str, RunningAttempt] = {}  # in the order in which they start
        self.without_slot: dict[str, RunningAttempt] = {}  # no GPU wanted, or its slot is gone
        self.deadlines = Deadlines(self.running)
        for slot in slots:
            self.add(slot)

    def add(self, slot: Slot, whole_slot: int | None = None) -> SlotState:
        """Add a slot or, with `whole_slot`, a shared slot on the GPU of that slot."""
        state = SlotState(slot, self.index.touch, whole_slot)
        self.states.append(state)
        self.by_node.setdefault(slot.node, []).append(state)
        self._node_of.append(slot.node)
        if (known := self.nodes.get(slot.node)) is not None:
            _close_by(state, known)
        if whole_slot is None:
            state.close(ClosedBy.USER, self._drained.get(self._recorded_label(slot)))
            self.layout_version += 1
            self._order.append(slot.index)
        else:
            self.shared.append(state)
        return state

    def retire(self, state: SlotState) -> None:
        """Take out a slot that its node no longer has. Whether a user drained it stays recorded."""
        self._retired[state.slot.index] = state
        state.close(ClosedBy.USER, REMOVED)
        for each in self._with_shared(state):
            self.by_node[state.slot.node].remove(each)
            each.drop_lease()
        self.layout_version += 1

    def restore(self, gpus: tuple[str, ...], keys: tuple[str, ...], node: str) -> bool:
        """Bring back a retired slot of a node; False if there is none with these GPUs."""
        for state in self._retired.values():
            slot = state.slot
            if (slot.gpus, slot.keys, slot.node) == (gpus, keys, node):
                break
        else:
            return False
        del self._retired[slot.index]
        state.close(ClosedBy.USER, self._drained.get(self._recorded_label(slot)))
        for each in self._with_shared(state):
            self.by_node[node].append(each)
            _close_by(each, self.nodes[node])
            each.drop_lease()
        self.layout_version += 1
        return True

    def _with_shared(self, state: SlotState) -> list[SlotState]:
        return [state, *(each for each in self.shared if each.whole_slot == state.slot.index)]

    def remember_drained(self, labels: Iterable[str], how: str) -> None:
        """Close slots that users took out of use earlier, now or when their node joins."""
        self._drained |= dict.fromkeys(labels, how)
        for state in self.whole_slots():
            state.close(ClosedBy.USER, self._drained.get(self._recorded_label(state.slot)))

    def drained_labels(self, how: str, *, own: bool = True) -> str | None:
        """Join the labels to record of the slots that users took out of use; None for none."""
        own_labels = set()
        for state in self.whole_slots():
            label = self._recorded_label(state.slot)
            self._drained.pop(label, None)
            if state.drained is not None:
                self._drained[label] = state.drained
            if self.is_own(state.slot.node):
                own_labels.add(label)
        found = [label for label, why in self._drained.items() if why == how]
        return ",".join(label for label in found if own or label not in own_labels) or None

    def _recorded_label(self, slot: Slot) -> str:
        """A slot's label in the records. This machine's slots keep theirs in and out of a cluster."""
        return slot.bare if self.is_own(slot.node) else slot.label

    def update_node(self, facts: NodeFacts) -> None:
        """Note the facts about a node. Nothing starts on a node that is away."""
        known = self.nodes.get(facts.name)
        self.nodes[facts.name] = facts
        for state in self.by_node.get(facts.name, ()):
            _close_by(state, facts)
        if known is None or known.labels != facts.labels:
            self.layout_version += 1

    def forget_node(self, name: str) -> None:
        """Retire the slots of a node that has left for good."""
        self.nodes.pop(name, None)
        for state in [each for each in self.by_node.get(name, ()) if each.whole_slot is None]:
            self.retire(state)
        self.layout_version += 1

    def update_models(self, models: Mapping[str, str]) -> None:
        """Note the models of GPUs, by lease key."""
        if not models.items() <= self.models.items():
            self.models |= models
            self.layout_version += 1

    def is_own(self, node: str) -> bool:
        """Whether a node's name means this machine. Outside a cluster its name is empty."""
        return node in ("", self.head)

    def is_away(self, node: str) -> bool:
        """Whether a node of a cluster cannot be reached."""
        facts = self.nodes.get(node)
        return facts is not None and facts.away is not None

    def node_without_gpu(self, candidate: Candidate | None) -> str:
        """On which node a job without GPU starts; empty for this machine."""
        if candidate is None or candidate.where is None:
            return ""
        return self.placement.node_without_gpu(candidate.where) or ""

    def own_states(self) -> list[SlotState]:
        """The slots of this machine, whose name is empty outside a cluster."""
        own = self.by_node.get("", [])
        return [*own, *self.by_node.get(self.head, [])] if self.head else own

    def cpus_of(self, node: str) -> int | None:
        """How many CPUs the jobs on a node may use; None if that is unknown."""
        if self.is_own(node):
            return None if self.hosts.capacity is None else self.hosts.capacity.cpus
        facts = self.nodes.get(node)
        return None if facts is None else facts.cpus

    def gpu_names(self) -> set[str]:
        """The names of all GPUs: with their node, and for this machine also without."""
        slots = [state.slot for state in self.states]
        named = {f"{slot.node}/{gpu}" for slot in slots if slot.node for gpu in slot.gpus}
        return named | {gpu for slot in slots if self.is_own(slot.node) for gpu in slot.gpus}

    def are_named(self, names: Collection[str], slot: Slot) -> bool:
        """Whether names of GPUs include all GPUs of a slot."""
        bare = self.is_own(slot.node)
        return all(
            (bare and gpu in names) or (slot.node and f"{slot.node}/{gpu}" in names)
            for gpu in slot.gpus
        )

    def whole_slots(self) -> list[SlotState]:
        """The slots of whole GPUs: neither shared nor retired."""
        return [
            state
            for state in self.states
            if state.whole_slot is None and state.slot.index not in self._retired
        ]

    def free(self) -> list[int]:
        """The slots on which a job could start now, in the order in which to fill them."""
        if not self._last_freed_first:
            return self.index.free()
        if any(isinstance(state.lease, LeaseRequested) for state in self.states):
            return []  # the order is by all slots, so it is not known before all answers are here
        return [index for index in reversed(self._order) if self.states[index].is_free]

    def free_cpu_places(self) -> int:
        """How many more jobs without GPU may start."""
        return max(0, self.cpu_places - len(self.without_slot)) if self.cpu_places else 0

    def count_open(self) -> int:
        """How many slots may get jobs at present, free or not."""
        return self.index.count_open()

    def can_have(self, slots: int, allowed: Collection[int] | None = None) -> bool:
        """Whether one node has so many open slots, free or not, among these."""
        if allowed is None:
            return slots <= self.index.most_open()
        if not slots:
            return True
        found: Counter[str] = Counter()
        for index in allowed:
            if self.index.is_open(index):
                node = self._node_of[index]
                found[node] += 1
                if found[node] >= slots:
                    return True
        return False

    def slots_left(self, allowed: Collection[int] | None = None) -> int:
        """The largest number of slots of one node among these, open or not, except removed slots.

        Without a restriction, nodes that the queue can ask for count too.
        """
        to_come = self.most_to_come if allowed is None else 0
        there = max(
            (
                sum(
                    state.drained != REMOVED and state.whole_slot is None
                    for state in states
                    if allowed is None or state.slot.index in allowed
                )
                for states in self.by_node.values()
            ),
            default=0,
        )
        return max(there, to_come)

    @property
    def grid(self) -> Nodes | None:
        """The planner's view of the nodes; None if there is only one."""
        return Nodes(self._node_of, self.busy_on) if len(self.by_node) > 1 else None

    @property
    def host_rooms(self) -> HostRooms:
        """The planner's view of CPUs and RAM."""
        return self.hosts.rooms(self.nodes, self.head)

    def busy(self) -> list[Busy]:
        """The occupied slots, for the planner."""
        return _busy(self.states, self.shared)

    def busy_on(self, node: str) -> list[Busy]:
        """The occupied slots of one node, for the planner."""
        states = self.by_node[node]
        return _busy(states, [state for state in states if state.whole_slot is not None])

    def attempts_on(self, state: SlotState) -> list[RunningAttempt]:
        """The attempts on a slot, or on the shared slots of its GPU."""
        if state.current is not None or not state.tenants:
            return [] if state.current is None else [state.current]
        return [each.current for each in self._with_shared(state) if each.current is not None]

    @property
    def has_one_supervisor(self) -> bool:
        """Whether this machine's supervisor starts the jobs of all slots."""
        return all(map(self.is_own, self.by_node))

    def slots_taking_ahead(self) -> list[SlotState]:
        """The slots that take attempts claimed ahead when they become vacant."""
        return [state for state in self.index.quick() if state.takes_ahead]

    def room_ahead(self, slots: list[SlotState]) -> dict[int, int]:
        """How many more attempts may be claimed ahead for these slots, as a number for the first."""
        most = min(_MAX_CLAIMED_AHEAD, sum(state.ahead for state in slots))
        room = most - len(self.claimed_ahead)
        return {slots[0].slot.index: room} if room > 0 else {}

    def claim_ahead(self, running: RunningAttempt) -> None:
        """Let an attempt wait for the first slot that becomes vacant."""
        running.phase = ClaimedAhead()
        self.running[running.key] = self.claimed_ahead[running.key] = running

    def assign(self, running: RunningAttempt, slots: tuple[Slot, ...]) -> None:
        """Put an attempt that was claimed ahead on the slots that the executor chose for it."""
        self.claimed_ahead.pop(running.key, None)
        self.without_slot.pop(running.key, None)
        if running.is_claimed_ahead:
            running.phase = STARTING
        running.slots = slots
        self.occupy(running)

    def occupy(self, running: RunningAttempt) -> None:
        """Put an attempt on its slots, or behind the attempts there."""
        self.running[running.key] = running
        self.hosts.add(running)
        if not running.slots:
            self.without_slot[running.key] = running
        for slot in running.slots:
            state = self.states[slot.index]
            if state.current is None:
                state.current = running
                if state.whole_slot is not None:
                    self.states[state.whole_slot].tenants += 1
            else:
                state.followers.append(running)
                self.index.touch(slot.index)

    def vacate(self, running: RunningAttempt) -> None:
        """Take an attempt off its slots. The next attempt there moves up."""
        del self.running[running.key]
        self.hosts.remove(running)
        self.claimed_ahead.pop(running.key, None)
        self.without_slot.pop(running.key, None)
        for slot in running.slots:
            state = self.states[slot.index]
            self.index.touch(slot.index)
            if state.current is running:
                state.current = state.followers.popleft() if state.followers else None
                if state.whole_slot is not None:
                    self.states[state.whole_slot].tenants -= 1
                    continue
            else:
                state.followers.remove(running)
            if self._last_freed_first:
                self._order.remove(slot.index)
                self._order.append(slot.index)

    def leave(self, running: RunningAttempt) -> None:
        """Take a suspended attempt off its slots; it stays among the running attempts."""
        self.vacate(running)
        self.running[running.key] = running
        self.hosts.add(running)
        running.slots = ()

    def adopt_suspended(self, running: RunningAttempt) -> None:
        """Add a suspended attempt, which has no slot."""
        self.running[running.key] = running
        self.hosts.add(running)

    def spread_adopted(self) -> None:
        """Move running attempts from behind others to empty slots with the same GPUs."""
        for state in self.states:
            for follower in [each for each in state.followers if each.pid is not None]:
                near = self.by_node[state.slot.node]
                twins = [each for each in near if each.slot.gpus == state.slot.gpus]
                idle = next((twin for twin in twins if twin.is_idle), None)
                if idle is not None and len(follower.slots) == 1:
                    state.followers.remove(follower)
                    self.index.touch(state.slot.index)
                    idle.current, follower.slots = follower, (idle.slot,)

    def unused_keys(self, state: SlotState) -> list[str]:
        """The lease keys of a slot that no held or requested slot needs."""
        users = self.index.users()
        return sorted(key for key in state.slot.keys if not users[key])


def _busy(states: list[SlotState], shared: list[SlotState]) -> list[Busy]:
    found = [
        Busy(state.slot.index, state.current.deadline)
        for state in states
        if state.current is not None and state.whole_slot is None
    ]
    return [*found, *_busy_by_tenants(shared)] if shared else found


def _busy_by_tenants(shared: list[SlotState]) -> Iterator[Busy]:
    """The slots of shared GPUs: free after the end of the last tenant."""
    deadlines: dict[int, list[float | None]] = {}
    for state in shared:
        if state.current is not None and state.whole_slot is not None:
            deadlines.setdefault(state.whole_slot, []).append(state.current.deadline)
    for whole_slot, ends in deadlines.items():
        known = [end for end in ends if end is not None]
        yield Busy(whole_slot, max(known) if len(known) == len(ends) else None)


def _close_by(state: SlotState, node: NodeFacts) -> None:
    """Close or open a slot as its node is."""
    state.close(ClosedBy.NODE, node.away)
    drained = node.why_drained
    state.close(ClosedBy.DRAIN, None if drained is None else f"belongs to a node that {drained}")
    state.close(ClosedBy.LACK, node.lacks)
