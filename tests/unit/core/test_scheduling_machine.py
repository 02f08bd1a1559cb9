"""The core as a whole, driven at random: jobs come, run, end in every way, and none is forgotten."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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

from stoker.core.invariants import check_plan, check_slots
from stoker.core.lifecycle import Event, State, after, is_final, is_live
from stoker.core.plan import Busy, Candidate, Plan, Start, plan

SLOTS = range(4)
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

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.jobs: dict[int, Job] = {}
        self.lines: dict[int, deque[int]] = {slot: deque() for slot in SLOTS}
        self.reservation: Reservation | None = None
        self.quick: set[int] = set()

    @rule(
        priority=st.integers(-1, 1),
        slots=st.integers(0, 4),
        timeout_s=st.none() | st.integers(1, 9).map(float),
    )
    def submit(self, priority: int, slots: int, timeout_s: float | None) -> None:
        number = len(self.jobs)
        self.jobs[number] = Job(Candidate(number, slots, priority, 0, timeout_s))
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

    @rule(slots=st.sets(st.sampled_from(SLOTS)))
    def learn_which_slots_have_short_jobs(self, slots: set[int]) -> None:
        self.quick = slots
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
        free = [slot for slot in SLOTS if not self.lines[slot]]
        busy = [
            Busy(slot, self.jobs[line[0]].deadline) for slot, line in self.lines.items() if line
        ]
        room = {slot: max(0, 3 - len(self.lines[slot])) for slot in SLOTS if slot in self.quick}
        light = sum(1 for n in self.running() if not self.jobs[n].slots)
        places = CPU_PLACES - light
        made = self.planner(
            waiting, free=free, busy=busy, room=room, cpu_places=places, now=self.now
        )
        check_plan(made, waiting, free=free, rooms=room, cpu_places=places)
        for start in made.starts:
            job = self.jobs[start.job]
            self.happen(start.job, Event.CLAIM)
            job.slots, job.claims = start.slots, job.claims + 1
            for slot in start.slots:
                self.lines[slot].append(start.job)
            if not start.in_advance:
                self.begin(start.job)
        self.watch_the_first({start.job for start in made.starts})

    def watch_the_first(self, started: set[int]) -> None:
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
        free = {slot for slot in SLOTS if not self.lines[slot]}
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
        check_slots(states, holders, SLOTS)

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
        free = sum(1 for line in self.lines.values() if not line)
        assert first is None or first.slots > free

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


def test_a_planner_without_reservations_is_caught() -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            GreedyScheduling, settings=settings(steady, phases=[Phase.generate])
        )
