from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.core.invariants import check_plan
from stoker.core.planner import Busy, Candidate, Plan, plan
from stoker.core.slot_choice import place_by_links
from unit.core.link_matrices import MATRICES, make_links

NOW = 1000.0
SLOTS = 8
steady = settings(deadline=None, derandomize=True, max_examples=200)
limits = st.none() | st.integers(1, 50).map(float)
matrices = st.sampled_from([*MATRICES])


@st.composite
def jobs(draw: st.DrawFn) -> list[Candidate]:
    allowed = st.none() | st.frozensets(st.integers(0, SLOTS - 1), min_size=1)
    kinds = st.tuples(st.integers(0, 4), st.integers(-1, 1), limits, allowed)
    found = [
        Candidate(id=number, slots=slots, priority=priority, timeout_s=timeout_s, allowed=may_use)
        for number, (slots, priority, timeout_s, may_use) in enumerate(
            draw(st.lists(kinds, max_size=10))
        )
    ]
    return sorted(found, key=lambda job: job.order)


@st.composite
def machines(draw: st.DrawFn) -> tuple[list[int], list[Busy]]:
    free, busy = [], []
    for slot in draw(st.permutations(range(SLOTS))):
        if draw(st.booleans()):
            free.append(slot)
        else:
            ends_by = draw(st.none() | st.integers(1, 50).map(lambda s: NOW + s))
            busy.append(Busy(slot, ends_by))
    return free, busy


@steady
@given(jobs(), machines(), matrices)
def test_no_start_is_delayed_and_nothing_that_is_kept_is_taken(
    waiting: list[Candidate], machine: tuple[list[int], list[Busy]], matrix: str
) -> None:
    free, busy = machine
    made = plan(waiting, free=free, busy=busy, cpu_places=1, now=NOW)
    starts = place_by_links(made, waiting, free, make_links(matrix, SLOTS))
    assert [(start.job, len(start.slots)) for start in starts] == [
        (start.job, len(start.slots)) for start in made.starts
    ]
    placed = msgspec.structs.replace(made, starts=starts)
    check_plan(placed, waiting, free=free, rooms={}, cpu_places=1)
    assert made.reserved.keys().isdisjoint(slot for start in starts for slot in start.slots)


@steady
@given(jobs(), machines(), matrices)
def test_a_lent_slot_stays_with_the_job_that_ends_in_time(
    waiting: list[Candidate], machine: tuple[list[int], list[Busy]], matrix: str
) -> None:
    free, busy = machine
    made = plan(waiting, free=free, busy=busy, now=NOW)
    before = {start.job: start.slots for start in made.starts}
    orders = {job.id: job.order for job in waiting}
    for start in place_by_links(made, waiting, free, make_links(matrix, SLOTS)):
        if made.reserved_for is not None and orders[start.job] > orders[made.reserved_for]:
            assert start.slots == before[start.job]


def placed(matrix: str, free: list[int], *wanted: int) -> list[tuple[int, ...]]:
    waiting = [Candidate(id=number, slots=slots) for number, slots in enumerate(wanted)]
    made: Plan = plan(waiting, free=free)
    return [start.slots for start in place_by_links(made, waiting, free, make_links(matrix, SLOTS))]


def test_jobs_that_start_together_get_pairs_and_single_ones_what_is_left() -> None:
    assert placed("pairs", [0, 2, 3, 4, 5], 1, 2) == [(0,), (4, 5)]
    assert placed("pairs", [0, 2, 3, 4, 5, 6], 2, 1, 2) == [(2, 3), (0,), (4, 5)]
    assert placed("pcie-2x4", [0, 1, 4, 5, 6, 7], 2, 4) == [(0, 1), (4, 5, 6, 7)]


def test_a_job_that_may_not_use_the_best_set_gets_the_best_of_its_own() -> None:
    waiting = [Candidate(id=1, slots=2, allowed=frozenset({0, 1, 2, 4}))]
    made = plan(waiting, free=[4, 0, 2, 1, 6, 7])
    (start,) = place_by_links(made, waiting, [4, 0, 2, 1, 6, 7], make_links("pairs", SLOTS))
    assert set(start.slots) == {0, 1}


@steady
@given(
    st.lists(machines(), min_size=1, max_size=4), st.lists(st.integers(0, 4), max_size=6), matrices
)
def test_a_choice_that_was_made_before_is_made_for_other_jobs_again(
    turns: list[tuple[list[int], list[Busy]]], sizes: list[int], matrix: str
) -> None:
    links = make_links(matrix, SLOTS)
    for first_id in (0, 100):
        for free, _busy in turns:
            waiting = [Candidate(id=first_id + n, slots=size) for n, size in enumerate(sizes)]
            made = plan(waiting, free=free, cpu_places=1)
            fresh = place_by_links(made, waiting, free, make_links(matrix, SLOTS))
            assert place_by_links(made, waiting, free, links) == fresh
