"""The slots, and what runs on them now and next."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from stoker.core.job import Attempt, Ending
from stoker.core.node import NodeFacts
from stoker.core.planner import Busy, Candidate, Nodes
from stoker.core.slot import Slot
from stoker.engine.deadlines import Deadlines
from stoker.engine.placement import PlacementCache
from stoker.engine.queue import QueueEntry
from stoker.engine.slot_index import SlotIndex

# Jobs shorter than QUICK_S are claimed in advance, about AHEAD_S of work for each slot. They wait in one
# line for the first slot that becomes vacant.
QUICK_S = 0.1
AHEAD_S = 0.04
_MAX_AHEAD = 32
_MOST_IN_LINE = 512
# Why a state has no new jobs, where somebody wants it so. One that was removed is as good as gone.
DRAINED = "drained"
REMOVED = "removed"


class RunningAttempt(msgspec.Struct, kw_only=True):
    """An attempt from its claim to its end."""

    key: str
    attempt: Attempt
    entry: QueueEntry
    slots: tuple[Slot, ...]
    log: str | None = None
    trace: str | None = None  # where it tells of its failure, if not in its log
    log_since: int = 0  # how much of that, or of the log, is of earlier attempts
    pid: int | None = None
    started_at_us: int | None = None
    begun: float = 0.0
    deadline: float | None = None
    killed_because: str | None = None
    ending: Ending | None = None
    grace_s: float = 0.0
    asked_to_end: bool = False
    paused_at: float | None = None
    stopped_s: float = 0.0  # how long it has been paused before
    in_line: bool = False  # it was claimed in advance, and the first vacant slot will take it
    revoking: bool = False
    taken_by: str | None = None  # the label of the slot that took it from the line
    adopted: bool = False  # the executor does not know on which slots it sits
    cut_off: bool = False  # it is over because nobody could reach its node
    node: str = ""  # on which node it runs; this machine may also go without its name

    @property
    def label(self) -> str:
        """Where it runs, as people are shown it: empty for a job without GPU on this machine."""
        return label_of(self.slots, self.node)

    @property
    def where(self) -> str:
        """The node it runs on; empty for this machine, if that has no name."""
        return self.slots[0].node if self.slots else self.node

    @property
    def is_preempted(self) -> bool:
        """Whether its job waits again once it has ended."""
        return self.ending is not None and self.ending.is_preemption

    @property
    def gpus(self) -> list[str]:
        """The GPUs it was given."""
        return [gpu for slot in self.slots for gpu in slot.gpus]


def label_of(slots: Collection[Slot], node: str = "") -> str:
    """Slots in one word; without any, the node alone, if one is named."""
    if not slots:
        return f"{node}/" if node else ""
    return ",".join([slot.label for slot in slots])


_set = msgspec.Struct.__setattr__


class SlotState(msgspec.Struct):
    """A slot's present: whether it is ours, what runs on it, and what follows.

    `touch` is told of every change.
    """

    slot: Slot
    touch: Callable[[int], None]
    held: bool = False
    asked: bool = False
    ask_again_at: float = 0.0
    waits_for: str | None = None
    closed: str | None = None
    away: str | None = None  # why its node cannot be reached
    releasing: bool = False  # the memory of what ran there last is not back yet
    drained: str | None = None
    current: RunningAttempt | None = None
    whole_slot: int | None = (
        None  # of a shared_slot: the state whose GPU is shared; nothing is planned on a shared_slot
    )
    tenants: int = 0  # how many shared_slots of its GPU are taken
    followers: deque[RunningAttempt] = msgspec.field(default_factory=deque)
    ahead: int = 0

    def __setattr__(self, name: str, value: Any) -> None:
        _set(self, name, value)
        self.touch(self.slot.index)

    @property
    def is_free(self) -> bool:
        """Whether a job could start here now."""
        return (
            self.held
            and self.current is None
            and not self.tenants
            and self.whole_slot is None
            and self.is_open
            and not self.releasing
        )

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs here, nor shares its GPU."""
        return self.current is None and not self.tenants and self.whole_slot is None

    @property
    def takes_ahead(self) -> bool:
        """Whether it takes jobs from the line when it becomes vacant."""
        adopted = self.current is not None and self.current.adopted
        return (
            self.ahead > 0
            and self.held
            and self.is_open
            and not (adopted or self.followers or self.releasing or self.tenants)
            and self.whole_slot is None
        )

    @property
    def is_open(self) -> bool:
        """Whether jobs may be started here at all."""
        return self.closed is None and self.drained is None and self.away is None

    @property
    def shut(self) -> str | None:
        """Why it has no jobs, where that is nobody's wish."""
        return self.away or self.closed

    def learn(self, duration_s: float) -> None:
        """Look ahead the further the shorter the jobs are."""
        quick = duration_s < QUICK_S
        self.ahead = min(_MAX_AHEAD, 1 + int(AHEAD_S / max(duration_s, 1e-4))) if quick else 0


class SlotTable:
    """All states of an engine."""

    def __init__(
        self,
        slots: tuple[Slot, ...],
        *,
        cpu_places: int = 0,
        last_freed_first: bool = False,
        head: str = "",
    ) -> None:
        self.states: list[SlotState] = []
        self.index = SlotIndex(self.states)
        touch = self.index.touch
        for slot in slots:
            self.states.append(SlotState(slot, touch))
            touch(slot.index)
        self.of_node: dict[
            str, list[SlotState]
        ] = {}  # all states of each node, also the shared_slots
        for state in self.states:
            self.of_node.setdefault(state.slot.node, []).append(state)
        self._node_of = [slot.node for slot in slots]
        self.placement = PlacementCache(self)
        # What is on record of slots that people took out of use, also of nodes that are not here yet.
        self._drained: dict[str, str] = {}
        self.nodes: dict[str, NodeFacts] = {}
        self.head = head  # what this machine is called in its cluster
        self.models: dict[str, str] = {}  # what kind of GPU a key stands for, as far as known
        # Grows when slots, nodes or models change: what was worked out from them is out of date then.
        self.layout_version = 0
        self.shared: list[SlotState] = []  # those of the states on which jobs share a GPU
        # What nodes no longer have, by index: it may come back, and keeps its number until then.
        self._gone: dict[int, SlotState] = {}
        self.running: dict[str, RunningAttempt] = {}
        self.deadlines = Deadlines(self.running)
        # What is claimed in advance, in the order in which it is to start.
        self.claimed_ahead: dict[str, RunningAttempt] = {}
        self.cpu_places = cpu_places
        # What runs on no slot: jobs without GPU, and those whose slot has been taken away since.
        self.without_slot: dict[str, RunningAttempt] = {}
        # The order in which free slots are filled; with `last_freed_first`, from its end.
        self._order = list(range(len(slots)))
        self._last_freed_first = last_freed_first

    def free(self) -> list[int]:
        """The slots on which a job could start now, those to be filled first at the beginning."""
        if not self._last_freed_first:
            return self.index.free()
        if any(state.asked for state in self.states):
            return []  # an order over some of the slots would not be the order over all
        return [index for index in reversed(self._order) if self.states[index].is_free]

    def add(self, slot: Slot, whole_slot: int | None = None) -> SlotState:
        """Have one more state; with a base, one more shared_slot on the GPU of that state."""
        known = self.nodes.get(slot.node)
        away = None if known is None else known.away
        state = SlotState(slot, self.index.touch, whole_slot=whole_slot, away=away)
        state.drained = self._drained.get(self._own_label(slot)) if whole_slot is None else None
        self.states.append(state)
        self.of_node.setdefault(slot.node, []).append(state)
        self._node_of.append(slot.node)
        if whole_slot is None:
            self.layout_version += 1
        if whole_slot is None:
            self._order.append(slot.index)
        else:
            self.shared.append(state)
        return state

    def remember_drained(self, labels: Iterable[str], how: str) -> None:
        """Take slots out of use that were when last heard of, now or when they come."""
        self._drained |= dict.fromkeys(labels, how)
        for state in self.whole_slots():
            state.drained = self._drained.get(self._own_label(state.slot))

    def drained_labels(self, how: str, *, own: bool = True) -> str | None:
        """The labels of slots that are out of use so, as they are put on record; None for none."""
        for state in self.whole_slots():
            label = self._own_label(state.slot)
            self._drained.pop(label, None)
            if state.drained is not None:
                self._drained[label] = state.drained
        names = {
            self._own_label(state.slot)
            for state in self.whole_slots()
            if self.is_own(state.slot.node)
        }
        found = [label for label, why in self._drained.items() if why == how]
        return ",".join(label for label in found if own or label not in names) or None

    def _own_label(self, slot: Slot) -> str:
        """A slot's label on record; this machine's slots keep theirs whether it is in a cluster or not."""
        return slot.bare if self.is_own(slot.node) else slot.label

    def note_node(self, facts: NodeFacts) -> None:
        """Know a node, or know it better; nothing starts on one that is away."""
        known = self.nodes.get(facts.name)
        self.nodes[facts.name] = facts
        for state in self.of_node.get(facts.name, ()):
            state.away = facts.away
        if known is None or known.labels != facts.labels:
            self.layout_version += 1

    def forget_node(self, name: str) -> None:
        """A node has left for good: its states are gone, what runs there has to end."""
        self.nodes.pop(name, None)
        for state in [state for state in self.of_node.get(name, ()) if state.whole_slot is None]:
            self.retire(state)
        self.layout_version += 1

    def retire(self, state: SlotState) -> None:
        """A node no longer has a state; whether people want it in use stays on record."""
        self._gone[state.slot.index] = state
        state.drained = REMOVED
        for each in self._with_shared(state):
            self.of_node[state.slot.node].remove(each)
            each.held = each.asked = False
        self.layout_version += 1

    def restore(self, gpus: tuple[str, ...], keys: tuple[str, ...], node: str) -> bool:
        """Have a state again that a node had before, as people want it; False if it had none like it."""
        for state in self._gone.values():
            slot = state.slot
            if (slot.gpus, slot.keys, slot.node) == (gpus, keys, node):
                break
        else:
            return False
        del self._gone[slot.index]
        state.drained = self._drained.get(self._own_label(slot))
        for each in self._with_shared(state):
            self.of_node[node].append(each)
            each.away = self.nodes[node].away
            each.held = each.asked = False  # whoever held it then may be gone
        self.layout_version += 1
        return True

    def _with_shared(self, state: SlotState) -> list[SlotState]:
        return [
            state,
            *(
                shared_slot
                for shared_slot in self.shared
                if shared_slot.whole_slot == state.slot.index
            ),
        ]

    def note_models(self, models: Mapping[str, str]) -> None:
        """Know what kinds of GPUs keys stand for."""
        if not models.items() <= self.models.items():
            self.models |= models
            self.layout_version += 1

    def node_without_gpu(self, candidate: Candidate | None) -> str:
        """On which node a job without GPU starts; empty for this machine."""
        if candidate is None or candidate.where is None:
            return ""
        return self.placement.node_without_gpu(candidate.where) or ""

    def gpu_names(self) -> set[str]:
        """What GPUs can be called: with their node, this machine's also without."""
        slots = [state.slot for state in self.states]
        named = {f"{slot.node}/{gpu}" for slot in slots if slot.node for gpu in slot.gpus}
        return named | {gpu for slot in slots if self.is_own(slot.node) for gpu in slot.gpus}

    def are_named(self, names: Collection[str], slot: Slot) -> bool:
        """Whether names of GPUs say those of a slot; this machine's may go without its name."""
        bare = self.is_own(slot.node)
        return all(
            (bare and gpu in names) or (slot.node and f"{slot.node}/{gpu}" in names)
            for gpu in slot.gpus
        )

    def is_own(self, node: str) -> bool:
        """Whether a node's name means this machine; before it had one, it had none."""
        return node in ("", self.head)

    @property
    def grid(self) -> Nodes | None:
        """Where the slots are, if they are on more than one node."""
        return Nodes(self._node_of, self.busy_on) if len(self.of_node) > 1 else None

    def count_open(self) -> int:
        """How many slots may have jobs at all, as things are."""
        return self.index.count_open()

    def can_have(self, slots: int, allowed: Collection[int] | None = None) -> bool:
        """Whether a job may have so many slots, as things are: of one node, among these."""
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
        """How many slots a job may ask for, among these: those of one node, but for removed ones."""
        return max(
            (
                sum(
                    state.drained != REMOVED and state.whole_slot is None
                    for state in states
                    if allowed is None or state.slot.index in allowed
                )
                for states in self.of_node.values()
            ),
            default=0,
        )

    def free_cpu_places(self) -> int:
        """How many more jobs without GPU may start."""
        return max(0, self.cpu_places - len(self.without_slot)) if self.cpu_places else 0

    def busy(self) -> list[Busy]:
        """The slots at work."""
        return self._busy(self.states, self.shared)

    def busy_on(self, node: str) -> list[Busy]:
        """The slots at work on one node."""
        states = self.of_node[node]
        return self._busy(states, [state for state in states if state.whole_slot is not None])

    def _busy(self, states: list[SlotState], shared_slots: list[SlotState]) -> list[Busy]:
        found = [
            Busy(state.slot.index, state.current.deadline)
            for state in states
            if state.current is not None and state.whole_slot is None
        ]
        return [*found, *_shared(shared_slots)] if shared_slots else found

    def whole_slots(self) -> list[SlotState]:
        """The states of whole GPUs: all that there are but the shared_slots."""
        return [
            state
            for state in self.states
            if state.whole_slot is None and state.slot.index not in self._gone
        ]

    def attempts_on(self, state: SlotState) -> list[RunningAttempt]:
        """What runs on a state, or on the shared_slots of its GPU."""
        if state.current is not None or not state.tenants:
            return [] if state.current is None else [state.current]
        return [
            shared_slot.current
            for shared_slot in self.shared
            if shared_slot.whole_slot == state.slot.index and shared_slot.current is not None
        ]

    @property
    def has_one_supervisor(self) -> bool:
        """Whether one supervisor, this machine's, starts the jobs of all slots in one order."""
        return all(map(self.is_own, self.of_node))

    def slots_taking_ahead(self) -> list[SlotState]:
        """The states that take jobs from the line when they become vacant."""
        return [state for state in self.index.quick() if state.takes_ahead]

    def room_ahead(self, takers: list[SlotState]) -> dict[int, int]:
        """How many more jobs may be claimed in advance, told for the first of these states."""
        most = min(_MOST_IN_LINE, sum(state.ahead for state in takers))
        room = most - len(self.claimed_ahead)
        return {takers[0].slot.index: room} if room > 0 else {}

    def claim_ahead(self, running: RunningAttempt) -> None:
        """Let an attempt wait in line for the first slot that becomes vacant."""
        running.in_line = True
        self.running[running.key] = self.claimed_ahead[running.key] = running

    def assign(self, running: RunningAttempt, slots: tuple[Slot, ...]) -> None:
        """Seat an attempt where it was started, which the executor alone decided."""
        self.claimed_ahead.pop(running.key, None)
        self.without_slot.pop(running.key, None)
        running.in_line, running.slots = False, slots
        self.occupy(running)

    def occupy(self, running: RunningAttempt) -> None:
        """Put an attempt on its slots, or behind those that are there."""
        self.running[running.key] = running
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
        """Take an attempt off its slots; the next in line moves up."""
        del self.running[running.key]
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

    def spread_adopted(self) -> None:
        """Of what runs, shared_slot nothing behind another while a slot with the same GPUs stands empty."""
        for state in self.states:
            for follower in [each for each in state.followers if each.pid is not None]:
                near = self.of_node[state.slot.node]
                twins = [p for p in near if p.slot.gpus == state.slot.gpus and p.is_idle]
                if twins and len(follower.slots) == 1:
                    state.followers.remove(follower)
                    self.index.touch(state.slot.index)
                    twins[0].current, follower.slots = follower, (twins[0].slot,)

    def unused_keys(self, state: SlotState) -> list[str]:
        """Lease keys of a state that is held no more, but for those that others need too."""
        users = self.index.users()
        return sorted(key for key in state.slot.keys if not users[key])


def _shared(shared_slots: list[SlotState]) -> Iterator[Busy]:
    """The states whose GPUs are shared: free once the last of those there has ended."""
    deadlines: dict[int, list[float | None]] = {}
    for shared_slot in shared_slots:
        if shared_slot.current is not None and shared_slot.whole_slot is not None:
            deadlines.setdefault(shared_slot.whole_slot, []).append(shared_slot.current.deadline)
    for base, ends in deadlines.items():
        known = [end for end in ends if end is not None]
        yield Busy(base, max(known) if len(known) == len(ends) else None)
