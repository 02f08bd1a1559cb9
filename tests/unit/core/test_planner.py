from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.core.invariants import check_plan
from stoker.core.planner import DEPTH, Busy, Candidate, Nodes, Plan, Start, plan

NOW = 1000.0
SLOTS = 5
steady = settings(deadline=None, derandomize=True, max_examples=120)
limits = st.none() | st.integers(1, 50).map(float)


class Scene(NamedTuple):
    """What a plan is made from."""

    waiting: list[Candidate]
    free: list[int]
    busy: list[Busy]
    room: dict[int, int]
    cpu_places: int

    def plan(self) -> Plan:
        return plan(
            self.waiting,
            free=self.free,
            busy=self.busy,
            room=self.room,
            cpu_places=self.cpu_places,
            now=NOW,
        )


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    waiting = [
        Candidate(id=number, slots=slots, priority=priority, rank=rank, timeout_s=timeout_s)
        for number, (slots, priority, rank, timeout_s) in enumerate(
            draw(
                st.lists(
                    st.tuples(st.integers(0, 4), st.integers(-1, 1), st.integers(0, 1), limits),
                    max_size=12,
                )
            )
        )
    ]
    free: list[int] = []
    busy: list[Busy] = []
    room: dict[int, int] = {}
    for slot in range(SLOTS):
        kind = draw(st.sampled_from(["free", "busy", "closed"]))
        if kind == "free":
            free.append(slot)
        elif kind == "busy":
            ends_by = draw(st.none() | st.integers(1, 50).map(lambda s: NOW + s))
            busy.append(Busy(slot, ends_by))
        if kind != "closed":
            room[slot] = draw(st.integers(0, 3))
    return Scene(
        sorted(waiting, key=lambda job: job.order), free, busy, room, draw(st.integers(0, 3))
    )


def free_when(missing: int, ends: list[float]) -> float:
    """When that many slots can be free at the earliest, if all keep to their limits."""
    return sorted(ends)[missing - 1] if 0 < missing <= len(ends) else NOW


def starts_of(made: Plan) -> dict[int, Start]:
    return {start.job: start for start in made.starts}


@steady
@given(scenes())
def test_every_plan_keeps_the_invariants(scene: Scene) -> None:
    check_plan(
        scene.plan(),
        scene.waiting,
        free=scene.free,
        rooms=scene.room,
        cpu_places=scene.cpu_places,
    )


@steady
@given(scenes())
def test_the_same_knowledge_gives_the_same_plan(scene: Scene) -> None:
    assert scene.plan() == scene.plan()


@steady
@given(scenes())
def test_a_backfilled_job_ends_before_the_job_it_passed_could_start(scene: Scene) -> None:
    starts = starts_of(scene.plan())
    on_gpus = [job for job in scene.waiting if job.slots]
    first = next((job for job in on_gpus if job.id not in starts), None)
    if first is None:
        return
    position = on_gpus.index(first)
    ahead = [starts[job.id] for job in on_gpus[:position]]
    taken = sum(len(start.slots) for start in ahead if not start.in_advance)
    ends = [NOW if place.ends_by is None else place.ends_by for place in scene.busy]
    limit_of = {job.id: job.timeout_s for job in scene.waiting}
    for start in ahead:
        if not start.in_advance:
            ends += [NOW + (limit_of[start.job] or 0.0)] * len(start.slots)
    spare_until = free_when(first.slots - (len(scene.free) - taken), ends)

    for job in on_gpus[position:]:
        if job.id in starts:
            assert job.timeout_s is not None
            assert NOW + job.timeout_s <= spare_until
            assert not starts[job.id].in_advance


@steady
@given(scenes())
def test_without_a_reservation_no_job_overtakes(scene: Scene) -> None:
    made = scene.plan()
    if made.reserved_for is not None:
        return
    started = [job.id in starts_of(made) for job in scene.waiting if job.slots]

    assert started == sorted(started, reverse=True)


@steady
@given(scenes())
def test_jobs_without_gpu_wait_for_nothing_but_a_place(scene: Scene) -> None:
    light = [job.id for job in scene.waiting if not job.slots]

    made = [start.job for start in scene.plan().starts if not start.slots]

    assert made == light[: scene.cpu_places]


@steady
@given(scenes())
def test_jobs_without_gpu_take_nothing_from_those_with(scene: Scene) -> None:
    heavy = [job for job in scene.waiting if job.slots]
    without = scene._replace(waiting=heavy, cpu_places=0).plan()

    made = [start for start in scene.plan().starts if start.slots]

    assert made == list(without.starts)


@steady
@given(scenes())
def test_the_first_job_that_fits_starts(scene: Scene) -> None:
    first = next((job for job in scene.waiting if job.slots), None)

    if first is not None and first.slots <= len(scene.free):
        assert first.id in starts_of(scene.plan())


@steady
@given(scenes())
def test_no_slot_stays_free_but_for_a_job_that_needs_more(scene: Scene) -> None:
    made = scene.plan()
    starts = starts_of(made)
    left = len(scene.free) - sum(len(s.slots) for s in made.starts if not s.in_advance)
    waiting_on = [job for job in scene.waiting if job.slots and job.id not in starts]

    if left and waiting_on:
        assert made.reserved_for == waiting_on[0].id
        assert waiting_on[0].slots > left


@steady
@given(scenes())
def test_nothing_is_claimed_in_advance_while_a_slot_is_free_for_it(scene: Scene) -> None:
    made = scene.plan()

    taken = 0
    for start in made.starts:
        if start.in_advance:
            assert taken == len(scene.free)
            assert len(start.slots) == 1
        taken += 0 if start.in_advance else len(start.slots)


def test_priority_comes_before_rank_and_rank_before_age() -> None:
    jobs = [
        Candidate(id=1, slots=1, priority=0, rank=0),
        Candidate(id=2, slots=1, priority=0, rank=-1),
        Candidate(id=3, slots=1, priority=5, rank=9),
    ]

    assert [job.id for job in sorted(jobs, key=lambda job: job.order)] == [3, 2, 1]


def test_a_big_job_that_is_first_keeps_the_free_slots() -> None:
    made = plan([Candidate(id=1, slots=2), Candidate(id=2, slots=1)], free=[0], busy=[Busy(1)])

    assert made == Plan((), reserved_for=1, reserved={0: 1})


def test_a_job_that_ends_in_time_is_backfilled_and_one_that_does_not_is_not() -> None:
    waiting = [
        Candidate(id=1, slots=2),
        Candidate(id=2, slots=1, timeout_s=11),
        Candidate(id=3, slots=1, timeout_s=10),
    ]

    made = plan(waiting, free=[0], busy=[Busy(1, ends_by=110.0)], now=100.0)

    assert made == Plan((Start(3, (0,)),), reserved_for=1)


def test_nothing_is_backfilled_where_a_slot_may_be_free_at_any_moment() -> None:
    waiting = [Candidate(id=1, slots=2), Candidate(id=2, slots=1, timeout_s=1)]

    assert plan(waiting, free=[0], busy=[Busy(1, ends_by=None)]).starts == ()


def test_the_limits_of_jobs_that_start_in_the_same_plan_count_for_who_may_pass() -> None:
    """Slot 0 is free again at 1, and then the big job has its two slots."""
    waiting = [
        Candidate(id=1, slots=1, timeout_s=1),
        Candidate(id=2, slots=2),
        Candidate(id=3, slots=1, timeout_s=99),
    ]

    made = plan(waiting, free=[0, 1], busy=[Busy(2, ends_by=100.0)])

    assert made == Plan((Start(1, (0,)),), reserved_for=2, reserved={1: 2})


def test_a_big_job_is_not_passed_by_claims_in_advance() -> None:
    made = plan(
        [Candidate(id=1, slots=2), Candidate(id=2, slots=1)], free=[], busy=[Busy(0)], room={0: 3}
    )

    assert made.starts == ()


def test_claims_in_advance_go_round_before_any_slot_gets_a_second() -> None:
    busy = [Busy(0), Busy(1), Busy(2)]

    made = plan([Candidate(id=n) for n in range(9)], free=[], busy=busy, room={0: 2, 1: 2, 2: 1})

    assert [start.slots[0] for start in made.starts] == [0, 1, 2, 0, 1]
    assert all(start.in_advance for start in made.starts)


def test_a_slot_that_is_just_being_filled_has_room_behind_its_job() -> None:
    made = plan([Candidate(id=n) for n in range(3)], free=[0], room={0: 1})

    assert made.starts == (Start(0, (0,)), Start(1, (0,), in_advance=True))


@pytest.mark.parametrize("rooms", [0, 2])
def test_the_queue_is_read_only_as_far_as_needed(rooms: int) -> None:
    numbers = itertools.count()

    made = plan(
        (Candidate(id=number) for number in numbers), free=[0, 1], busy=[Busy(2)], room={2: rooms}
    )

    assert len(made.starts) == 2 + rooms
    assert next(numbers) <= 2 + rooms + 1


def nodes(names: str, busy: Sequence[Busy] = ()) -> Nodes:
    """One letter for each slot: its node."""
    return Nodes(names, lambda node: [place for place in busy if names[place.slot] == node])


def test_the_slots_of_a_job_are_of_one_node_however_many_are_free_on_others() -> None:
    made = plan([Candidate(id=1, slots=2)], free=[0, 1], nodes=nodes("ab"))

    assert made.starts == ()
    made = plan([Candidate(id=1, slots=2)], free=[0, 1, 2], nodes=nodes("abb"))
    assert made.starts == (Start(1, (1, 2)),)


def test_a_job_goes_to_the_node_with_just_enough_free_slots_so_that_whole_nodes_are_left() -> None:
    made = plan(
        [Candidate(id=1, slots=2), Candidate(id=2, slots=3)], free=range(5), nodes=nodes("aaabb")
    )

    assert made.starts == (Start(1, (3, 4)), Start(2, (0, 1, 2)))


def test_what_is_kept_for_a_big_job_is_of_one_node_and_the_others_go_on() -> None:
    busy = [Busy(1), Busy(3)]
    waiting = [Candidate(id=1, slots=2), Candidate(id=2), Candidate(id=3)]

    made = plan(waiting, free=[0, 2], busy=busy, nodes=nodes("aabb", busy))

    assert made == Plan((Start(2, (2,)),), reserved_for=1, reserved={0: 1})


def test_a_big_job_waits_where_it_needs_the_end_of_the_fewest_jobs_without_a_limit() -> None:
    busy = [Busy(1), Busy(2), Busy(4, ends_by=900.0), Busy(5)]

    made = plan([Candidate(id=1, slots=3)], free=[0, 3], nodes=nodes("aaabbb", busy))

    assert made.reserved == {3: 1}


def test_of_equal_nodes_a_big_job_waits_on_the_one_whose_limits_free_it_first() -> None:
    busy = [Busy(1, ends_by=90.0), Busy(3, ends_by=50.0)]

    made = plan([Candidate(id=1, slots=2)], free=[0, 2], nodes=nodes("aabb", busy))

    assert made.reserved == {2: 1}


def test_nothing_is_kept_on_a_node_that_is_too_small() -> None:
    busy = [Busy(1), Busy(3)]

    made = plan(
        [Candidate(id=1, slots=3), Candidate(id=2)], free=[0, 2], nodes=nodes("aabbb", busy)
    )

    assert made.starts == (Start(2, (0,)),)


def test_two_big_jobs_keep_slots_of_a_node_each() -> None:
    busy = [Busy(1), Busy(3)]
    waiting = [Candidate(id=1, slots=2), Candidate(id=2, slots=2), Candidate(id=3)]

    made = plan(waiting, free=[0, 2], nodes=nodes("aabb", busy))

    assert made == Plan((), reserved_for=1, reserved={0: 1, 2: 2})


def test_a_job_that_ends_in_time_passes_a_big_one_also_on_the_node_where_that_waits() -> None:
    busy = [Busy(1, ends_by=110.0)]
    waiting = [
        Candidate(id=1, slots=2),
        Candidate(id=2, timeout_s=11),
        Candidate(id=3, timeout_s=10),
    ]

    made = plan(waiting, free=[0], now=100.0, nodes=nodes("aa", busy))

    assert made == Plan((Start(3, (0,)),), reserved_for=1)


def test_a_big_job_that_may_not_use_a_node_keeps_nothing_there() -> None:
    busy = [Busy(1), Busy(3)]

    made = plan(
        [Candidate(id=1, slots=2, allowed=frozenset({2, 3}))],
        free=[0, 2],
        nodes=nodes("aabb", busy),
    )

    assert made.reserved == {2: 1}


def test_slots_are_kept_for_the_first_jobs_that_wait_and_those_behind_go_on_elsewhere() -> None:
    """Twenty nodes with a slot free on each: sixteen are kept, and the other four are used."""
    names = "".join(2 * chr(ord("a") + node) for node in range(20))
    busy = [Busy(slot) for slot in range(1, 40, 2)]
    waiting = [
        *(Candidate(id=job, slots=2) for job in range(18)),
        *(Candidate(id=job) for job in range(18, 30)),
    ]

    made = plan(waiting, free=range(0, 40, 2), nodes=nodes(names, busy))

    assert set(made.reserved.values()) == set(range(DEPTH))
    assert [start.job for start in made.starts] == [18, 19, 20, 21]
