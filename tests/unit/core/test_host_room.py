"""CPUs and RAM: what a job lacks, in words, and who gets what is left."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.core.host_room import HostNeed, HostPlan, HostRoom, HostRooms
from stoker.core.invariants import InvariantError, check_plan
from stoker.core.planner import Candidate, Nodes, Plan, Start, plan

GIB = 1 << 30
steady = settings(deadline=None, derandomize=True, max_examples=150)


def job(
    number: int, gib: int | None = None, *, cpus: int | None = None, slots: int = 1
) -> Candidate:
    mem_bytes = None if gib is None else gib * GIB
    return Candidate(id=number, slots=slots, cpus=cpus, mem_bytes=mem_bytes)


def machine(gib: int = 64, cpus: int = 16, **used: int) -> HostRoom:
    return HostRoom(cpus=cpus, mem_bytes=gib * GIB, **used)


def started(made: Plan) -> list[int]:
    return [start.job for start in made.starts]


def plan_here(waiting: Sequence[Candidate], room: HostRoom, free: int = 4) -> Plan:
    hosts = HostRooms({"": room})
    made = plan(waiting, free=range(free), cpu_places=4, hosts=hosts)
    check_plan(made, waiting, free=range(free), rooms={}, cpu_places=4, hosts=hosts)
    return made


@pytest.mark.parametrize(
    ("need", "used", "lack"),
    [
        (HostNeed(16, 64 * GIB), {}, None),
        (HostNeed(None, None), {"used_bytes": 99 * GIB, "used_cpus": 99}, None),
        (
            HostNeed(None, 32 * GIB),
            {"used_bytes": 52 * GIB},
            "needs 32 GiB of RAM, and 12 GiB of 64 GiB are not set aside",
        ),
        (
            HostNeed(None, 32 * GIB),
            {"used_bytes": 70 * GIB},
            "needs 32 GiB of RAM, and 0 MiB of 64 GiB are not set aside",
        ),
        (
            HostNeed(None, 3 * GIB),
            {"available_bytes": 5 << 29},
            "needs 3 GiB of RAM, and only 2.5 GiB are free on the machine",
        ),
        (HostNeed(8), {"used_cpus": 12}, "needs 8 CPUs, and 4 of 16 are not set aside"),
        (HostNeed(1), {"used_cpus": 16}, "needs 1 CPU, and 0 of 16 are not set aside"),
    ],
)
def test_what_a_job_lacks_is_said_in_figures(
    need: HostNeed, used: dict[str, int], lack: str | None
) -> None:
    assert machine(**used).shortage(need) == lack


def test_a_machine_of_unknown_size_keeps_no_job_waiting() -> None:
    assert HostRoom().shortage(HostNeed(1000, 1 << 50)) is None
    assert started(plan([job(1, 1000)], free=[0])) == [1]


def test_a_job_starts_only_if_what_it_declares_fits_beside_the_running_jobs() -> None:
    waiting = [job(1, 20), job(2, 30), job(3, cpus=9), job(4)]
    assert started(plan_here(waiting, machine(used_bytes=40 * GIB, used_cpus=8))) == [1, 4]


def test_jobs_that_start_together_fit_together() -> None:
    assert started(plan_here([job(1, 40), job(2, 40), job(3, 40)], machine())) == [1]


def test_the_first_job_that_waits_keeps_its_ram_from_jobs_behind_it() -> None:
    made = plan_here([job(1, 60), job(2, 10), job(3, cpus=4)], machine(used_bytes=30 * GIB))

    assert started(made) == [3]
    assert made.host_kept == {"": 1}


def test_a_job_that_waits_for_a_gpu_keeps_its_ram_from_jobs_without() -> None:
    waiting = [job(1, 50), job(2, 10, slots=0), job(3, 10, slots=0)]
    made = plan_here(waiting, machine(), free=0)

    assert started(made) == [2]


def test_a_job_without_gpu_keeps_its_ram_from_jobs_behind_it() -> None:
    waiting = [job(1, 70, slots=0), job(2, 10, slots=0), job(3, 10), job(4)]
    assert started(plan_here(waiting, machine())) == [4]


def test_a_job_on_several_gpus_keeps_none_of_them_while_it_lacks_ram() -> None:
    made = plan_here([job(1, 60, slots=3), job(2)], machine(used_bytes=30 * GIB), free=2)

    assert started(made) == [2]
    assert made.reserved == {}


def test_a_job_that_declares_cpus_is_not_claimed_in_advance() -> None:
    waiting = [job(1, cpus=1), job(2)]
    made = plan(waiting, free=[], room={0: 2}, hosts=HostRooms({"": machine()}))
    assert started(made) == []


def test_a_job_goes_to_a_node_with_room() -> None:
    nodes = Nodes(("a", "a", "b", "b"), lambda _node: ())
    hosts = HostRooms({"a": machine(used_bytes=60 * GIB), "b": machine()})
    made = plan([job(1, 32), job(2, 32, slots=2)], free=[0, 1, 2, 3], nodes=nodes, hosts=hosts)

    assert made.starts == (Start(1, (2,)),)
    assert made.host_kept == {"b": 2}  # of the two it has more to give


def test_ram_is_kept_on_one_node_and_the_others_go_on() -> None:
    nodes = Nodes(("a", "b"), lambda _node: ())
    hosts = HostRooms({"a": machine(used_bytes=40 * GIB), "b": machine(used_bytes=10 * GIB)})
    made = plan([job(1, 60), job(2, 20), job(3, 20)], free=[0, 1], nodes=nodes, hosts=hosts)

    assert made.host_kept == {"b": 1}
    assert made.starts == (Start(2, (0,)),)


def test_nothing_is_kept_on_a_node_that_does_not_answer() -> None:
    hosts = HostPlan(HostRooms({"a": machine()}))
    hosts.keep(job(1, 100), 1, ["b"])
    assert hosts.kept == {}


def test_a_plan_that_gives_ram_twice_breaks_an_invariant() -> None:
    waiting = [job(1, 40), job(2, 40)]
    made = Plan((Start(1, (0,)), Start(2, (1,))))
    with pytest.raises(InvariantError, match="job 2 is planned where it has too few CPUs"):
        check_plan(
            made,
            waiting,
            free=[0, 1],
            rooms={},
            cpu_places=0,
            hosts=HostRooms({"": machine()}),
        )


needs = st.tuples(st.integers(0, 2), st.none() | st.integers(1, 80), st.none() | st.integers(1, 20))


@steady
@given(st.lists(needs, max_size=10), st.integers(0, 64), st.integers(0, 16))
def test_no_plan_sets_aside_more_than_there_is(
    asked: list[tuple[int, int | None, int | None]], used_gib: int, used_cpus: int
) -> None:
    waiting = [job(n, gib, cpus=cpus, slots=slots) for n, (slots, gib, cpus) in enumerate(asked)]
    plan_here(waiting, machine(used_bytes=used_gib * GIB, used_cpus=used_cpus))


@steady
@given(st.lists(needs, min_size=1, max_size=10), st.data())
def test_the_first_job_that_declares_gets_its_turn_however_many_jobs_follow(
    asked: list[tuple[int, int | None, int | None]], data: st.DataObject
) -> None:
    """Jobs end one by one, and more come behind. The first job waits only for those that ran before it."""
    first = job(0, 60, cpus=12)
    ran = {n: HostNeed(cpus, (gib or 0) * GIB) for n, (_slots, gib, cpus) in enumerate(asked, 100)}
    running = dict(ran)
    for round_ in range(len(ran) + 1):
        room = machine(
            used_bytes=sum(each.mem_bytes or 0 for each in running.values()),
            used_cpus=sum(each.cpus or 0 for each in running.values()),
        )
        late = [job(1000 + 10 * round_ + n, 5, cpus=1, slots=0) for n in range(3)]
        made = plan_here([first, *late], room)
        if 0 in started(made):
            return
        running |= {
            each.id: HostNeed(each.cpus, each.mem_bytes)
            for each in late
            if each.id in started(made)
        }
        left = [number for number in running if number in ran]
        assert left, "only jobs behind it run, and it still waits"
        del running[data.draw(st.sampled_from(left))]
    raise AssertionError("it never started")
