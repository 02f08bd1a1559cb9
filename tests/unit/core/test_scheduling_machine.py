"""The core as a whole, driven at random: jobs come, run, end in every way, and none is forgotten."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stoker.core.invariants import InvariantError, check_plan, check_slots
from stoker.core.lifecycle import Event, State, after, is_final, is_live
from stoker.core.planner import Busy, Candidate, Nodes, Plan, Start, plan

CPU_PLACES = 2
ENDS = (Event.SUCCEED, Event.FAIL, Event.KILL, Event.LOSE)


@dataclass
class Job:
    """A job as a scheduler would keep it."""

    wants: Candidate
    state: State = State.WAITING
    slots: tuple[int, ...] = ()
    deadline: float | None = None
    claims: int = 0


@dataclass
class Reservation:
    """The first waiting job, until when it must have its slots, and who was let past it."""

    job: int
    due: float
    passed_by: set[int]


class Scheduling(RuleBasedStateMachine):
    """Submits, ends, retries and revokes in any order; plans after every step, as the engine does."""

    planner = staticmethod(plan)
    node_of: tuple[str, ...] = ("",) * 4
    most = 4

    def __init__(self) -> None:
        super().__init__()
        self.slots = range(len(self.node_of))
        self.now = 0.0
        self.jobs: dict[int, Job] = {}
        self.lines: dict[int, deque[int]] = {slot: deque() for slot in self.slots}
        self.reservation: Reservation | None = None
        self.quick: set[int] = set()

    @rule(
        priority=st.integers(-1, 1),
        slots=st.integers(0, 4),
        timeout_s=st.none() | st.integers(1, 9).map(float),
    )
    def submit(self, priority: int, slots: int, timeout_s: float | None) -> None:
        number = len(self.jobs)
        slots = min(slots, self.most)
        self.jobs[number] = Job(
            Candidate(id=number, slots=slots, priority=priority, rank=0, timeout_s=timeout_s)
        )
        self.carry_out()

    @rule(seconds=st.integers(1, 5))
    def advance(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            over = [n for n, job in self.jobs.items() if job.deadline == self.now]
            for number in over:
                self.end(number, Event.KILL)
            self.carry_out()

    @precondition(lambda self: self.running())
    @rule(data=st.data(), event=st.sampled_from(ENDS))
    def end_one(self, data: st.DataObject, event: Event) -> None:
        self.end(data.draw(st.sampled_from(self.running())), event)
        self.carry_out()

    @precondition(lambda self: self.undone())
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        self.happen(data.draw(st.sampled_from(self.undone())), Event.RETRY)
        self.carry_out()

    @precondition(lambda self: self.followers())
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.followers()))
        self.lines[self.jobs[number].slots[0]].remove(number)
        self.jobs[number].slots = ()
        self.happen(number, Event.REVOKE)
        self.jobs[number].claims -= 1
        self.carry_out()

    @rule(slots=st.sets(st.integers(0, 5)))
    def learn_which_slots_have_short_jobs(self, slots: set[int]) -> None:
        self.quick = slots.intersection(self.slots)
        self.carry_out()

    def running(self) -> list[int]:
        return [n for n, job in self.jobs.items() if job.state is State.RUNNING]

    def followers(self) -> list[int]:
        return [n for line in self.lines.values() for n in [*line][1:]]

    def undone(self) -> list[int]:
        return [
            n for n, job in self.jobs.items() if is_final(job.state) and job.state is not State.DONE
        ]

    def waiting(self) -> list[Candidate]:
        found = [job.wants for job in self.jobs.values() if job.state is State.WAITING]
        return sorted(found, key=lambda wants: wants.order)

    def happen(self, number: int, event: Event) -> None:
        job = self.jobs[number]
        job.state = after(job.state, event)

    def end(self, number: int, event: Event) -> None:
        job = self.jobs[number]
        self.happen(number, event)
        for slot in job.slots:
            assert self.lines[slot].popleft() == number
            if self.lines[slot]:
                self.begin(self.lines[slot][0])
        job.slots, job.deadline = (), None

    def begin(self, number: int) -> None:
        job = self.jobs[number]
        self.happen(number, Event.START)
        if job.wants.timeout_s is not None:
            job.deadline = self.now + job.wants.timeout_s

    def carry_out(self) -> None:
        """Plan, start what the plan says, and see that nobody who is first is kept waiting."""
        waiting = self.waiting()
        free = [slot for slot in self.slots if not self.lines[slot]]
        busy = self.busy()
        room = {
            slot: max(0, 3 - len(self.lines[slot])) for slot in self.slots if slot in self.quick
        }
        light = sum(1 for n in self.running() if not self.jobs[n].slots)
        places = CPU_PLACES - light
        made = self.planner(
            waiting, free=free, busy=busy, room=room, cpu_places=places, now=self.now, **self.more()
        )
        check_plan(made, waiting, free=free, rooms=room, cpu_places=places, node_of=self.node_of)
        for start in made.starts:
            job = self.jobs[start.job]
            self.happen(start.job, Event.CLAIM)
            job.slots, job.claims = start.slots, job.claims + 1
            for slot in start.slots:
                self.lines[slot].append(start.job)
            if not start.in_advance:
                self.begin(start.job)
        self.watch_the_first({start.job for start in made.starts}, made)

    def more(self) -> Mapping[str, Any]:
        """What the planner is told beside all else."""
        return {}

    def busy(self) -> list[Busy]:
        return [
            Busy(slot, self.jobs[line[0]].deadline) for slot, line in self.lines.items() if line
        ]

    def watch_the_first(self, started: set[int], _made: Plan) -> None:
        first = next((wants for wants in self.waiting() if wants.slots), None)
        if first is None:
            self.reservation = None
            return
        past = {n for n in started if self.jobs[n].slots and self.jobs[n].wants.order > first.order}
        due = self.could_start(first, beside=past)
        held = self.reservation
        if held is None or held.job != first.id:
            held = self.reservation = Reservation(first.id, due, set())
        held.due = min(held.due, due)
        held.passed_by |= past
        in_the_way = {slot for n in held.passed_by for slot in self.jobs[n].slots}
        free = {slot for slot in self.slots if not self.lines[slot]}
        if len(free | in_the_way) >= first.slots:
            assert self.now < held.due, f"{held} should have started"

    def could_start(self, first: Candidate, beside: set[int]) -> float:
        """When enough slots can be free, seen before `beside` were let past."""
        moments = []
        for line in self.lines.values():
            moment = self.now
            for number in line:
                job = self.jobs[number]
                if number in beside or job.wants.timeout_s is None:
                    moment = self.now
                    break
                moment = job.deadline or moment + job.wants.timeout_s
            moments.append(moment)
        return sorted(moments)[first.slots - 1]

    @invariant()
    def slots_are_in_order(self) -> None:
        states = {n: job.state for n, job in self.jobs.items()}
        heads = {line[0] for line in self.lines.values() if line}
        holders = {n: self.jobs[n].slots for n in heads}
        check_slots(states, holders, self.slots, self.node_of)

    @invariant()
    def only_live_jobs_have_slots_or_deadlines(self) -> None:
        for number, job in self.jobs.items():
            if not is_live(job.state):
                assert not job.slots
                assert job.deadline is None
            for slot in job.slots:
                assert number in self.lines[slot]

    @invariant()
    def jobs_without_gpu_wait_only_for_a_place(self) -> None:
        light = sum(1 for n in self.running() if not self.jobs[n].wants.slots)
        if light < CPU_PLACES:
            assert all(wants.slots for wants in self.waiting())

    @invariant()
    def no_slot_is_idle_while_what_is_first_fits(self) -> None:
        first = next((wants for wants in self.waiting() if wants.slots), None)
        free = Counter(self.node_of[slot] for slot, line in self.lines.items() if not line)
        assert first is None or first.slots > max(free.values(), default=0)

    def teardown(self) -> None:
        """With nothing new coming, everything runs to its end, each job once more at most."""
        claims = {n: job.claims for n, job in self.jobs.items()}
        waited = {n for n, job in self.jobs.items() if job.state is State.WAITING}
        for _ in range(len(self.jobs) + 1):
            for number in self.running():
                self.end(number, Event.SUCCEED)
            self.carry_out()
        assert not self.waiting()
        assert all(is_final(job.state) for job in self.jobs.values())
        assert not any(self.lines.values())
        for number, job in self.jobs.items():
            assert job.claims == claims[number] + (number in waited)


class ClusterScheduling(Scheduling):
    """The same story over nodes of three, two and one slot: a job's slots are of one of them."""

    node_of = ("a", "a", "a", "b", "b", "c")
    most = 3

    def __init__(self) -> None:
        super().__init__()
        self.kept: tuple[int, str, tuple[int, float]] | None = None

    def more(self) -> Mapping[str, Nodes]:
        return {"nodes": Nodes(self.node_of, self.busy_on)}

    def busy_on(self, node: str) -> list[Busy]:
        return [place for place in self.busy() if self.node_of[place.slot] == node]

    def watch_the_first(self, started: set[int], made: Plan) -> None:
        """What the first one waits for on the node that is kept for it never grows.

        It may wait on another only for less, or where all that was kept went to jobs that end in time.
        """
        first = next((wants for wants in self.waiting() if wants.slots), None)
        if first is None or self.followers():
            self.kept = None
            return
        if any(self.jobs[number].wants.order < first.order for number in started):
            self.kept = None  # what is ahead of it may take anything
        if self.kept is not None and self.kept[0] == first.id:
            _job, node, before = self.kept
            assert self.lacks(first, node) <= before
        nodes = {self.node_of[slot] for slot, job in made.reserved.items() if job == first.id}
        assert len(nodes) <= 1
        for node in nodes:
            lacks = self.lacks(first, node)
            if self.kept is None or self.kept[0] != first.id or lacks <= self.kept[2]:
                self.kept = (first.id, node, lacks)
            else:
                last = self.kept[1]
                assert all(self.lines[slot] for slot in self.slots if self.node_of[slot] == last)

    def lacks(self, job: Candidate, node: str) -> tuple[int, float]:
        """How many jobs without a limit must end on a node before it has room, and by when others do."""
        busy = self.busy_on(node)
        limits = sorted(place.ends_by for place in busy if place.ends_by is not None)
        missing = job.slots - (self.node_of.count(node) - len(busy))
        if missing <= 0:
            return (0, 0.0)
        by_limit = limits[min(missing, len(limits)) - 1] if limits else 0.0
        return (max(0, missing - len(limits)), by_limit)


class ScatteredScheduling(ClusterScheduling):
    """The same story with a planner that knows of no nodes."""

    def more(self) -> Mapping[str, Nodes]:
        return {}


def greedy(waiting: Iterable[Candidate], *, free: Sequence[int], **_known: object) -> Plan:
    """The naive planner: whatever fits starts, so a big job may wait for ever."""
    left, starts = list(free), []
    for job in waiting:
        if 0 < job.slots <= len(left):
            starts.append(Start(job.id, tuple(left[: job.slots])))
            del left[: job.slots]
    return Plan(tuple(starts))


class GreedyScheduling(Scheduling):
    """The same story with the naive planner."""

    planner = staticmethod(greedy)


steady = settings(deadline=None, derandomize=True, max_examples=100, stateful_step_count=40)
TestScheduling = Scheduling.TestCase
TestScheduling.settings = steady
TestClusterScheduling = ClusterScheduling.TestCase
TestClusterScheduling.settings = steady


def test_a_planner_without_reservations_is_caught() -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            GreedyScheduling, settings=settings(steady, phases=[Phase.generate])
        )


def test_a_planner_that_knows_of_no_nodes_is_caught() -> None:
    with pytest.raises(InvariantError, match="on more than one node"):
        run_state_machine_as_test(
            ScatteredScheduling, settings=settings(steady, phases=[Phase.generate])
        )
