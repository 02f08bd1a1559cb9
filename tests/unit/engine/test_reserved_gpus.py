from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from scale import LONG
from stoker.core.box_rules import BoxRules, Limits, Reservation
from stoker.core.slot import Slot
from stoker.errors import ConflictError
from stoker.gpus.turn_files import Notice
from unit.engine.engine_harness import MakeHarness
from unit.engine.test_sharing import Machine
from unit.engine.turn_box import Box, FakeBoard, Member

JOBS = {"ann": 10.0, "bob": 10.0, "run": 10.0}


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path, gpus=4)
    yield box
    box.close()


@pytest.fixture
def ann(box: Box) -> Member:
    return box.add("ann", 401001)


@pytest.fixture
def bob(box: Box) -> Member:
    return box.add("bob", 401002)


def test_reserved_gpus_are_kept_idle_until_the_end_and_yielded_at_once(
    box: Box, ann: Member, bob: Member
) -> None:
    assert ann.reserve(2, for_s=100).held == ["0", "1"]
    assert ann.holds() == ["GPU-0", "GPU-1"]
    bob.add(*["train"] * 200)
    box.run(99.9, JOBS)
    assert ann.holds() == ["GPU-0", "GPU-1"]
    assert len(bob.executor.running) == 2
    assert "GPU 0 is reserved by 401001 until" in bob.why(200)
    box.run(0.2, JOBS)
    assert ann.holds() == []
    assert len(bob.executor.running) == 4
    assert ann.reservations() == []


def test_a_reserved_gpu_is_not_yielded_at_the_end_of_a_job(
    box: Box, ann: Member, bob: Member
) -> None:
    ann.add(*["train"] * 200)
    box.run(100, JOBS)
    ann.reserve(1, for_s=50)
    bob.add(*["train"] * 200)
    box.run(49, JOBS)
    assert len(ann.executor.running) == 1
    assert len(bob.executor.running) == 3
    box.run(11, JOBS)
    assert len(bob.executor.running) == 4


def test_before_it_begins_nothing_is_held_and_then_it_waits_in_turn(
    box: Box, ann: Member, bob: Member
) -> None:
    bob.add(*["train"] * 200)
    ann.reserve(3, for_s=100, after_s=23)
    box.run(22.9, JOBS)
    assert ann.holds() == []
    assert not box.notices.get("ann", Notice()).wants
    box.run(0.2, JOBS)
    (found,) = ann.reservations()
    assert found.held == []
    assert found.waits_for is not None
    assert found.waits_for.startswith("waits for 3 GPUs: GPU 0 held by")
    box.run(8, JOBS)
    assert len(ann.holds()) == 3
    assert len(bob.executor.running) == 1
    box.run(90, JOBS)
    assert len(ann.holds()) == 3
    box.run(3, JOBS)
    assert ann.holds() == []
    assert box.longest_idle_s <= 2.0


def test_who_has_used_more_gets_no_gpu_by_a_reservation(box: Box, ann: Member, bob: Member) -> None:
    ann.add(*["train"] * 40)
    box.run(100.5, JOBS)
    bob.add(*["train"] * 200)
    box.run(5, JOBS)
    ann.reserve(2, for_s=40)
    box.run(30, JOBS)
    assert ann.holds() == []
    assert "it is their turn" in str(ann.reservations()[0].waits_for)


def test_the_time_of_a_reservation_counts_as_use(box: Box, ann: Member, bob: Member) -> None:
    ann.reserve(4, for_s=50)
    box.run(50.5, JOBS)
    ann.add(*["train"] * 200)
    bob.add(*["train"] * 200)
    box.run(40, JOBS)
    assert len(bob.executor.running) == 4


def test_alone_on_the_machine_a_reservation_begins_and_ends_at_its_time(
    box: Box, ann: Member
) -> None:
    ann.reserve(1, for_s=200.5, after_s=200)
    box.run(220, JOBS)
    assert ann.used_s == pytest.approx(20, abs=0.1)
    box.run(280, JOBS)
    assert ann.used_s == pytest.approx(200.5, abs=0.1)


def test_a_reservation_keeps_its_gpus_while_its_daemon_is_down(
    box: Box, ann: Member, bob: Member
) -> None:
    ann.reserve(2, for_s=100)
    bob.add(*["train"] * 200)
    box.run(1, JOBS)
    ann.go_down()
    box.run(50, JOBS)
    assert ann.holds() == ["GPU-0", "GPU-1"]
    assert "GPU 0 is reserved by 401001 until" in bob.why(200)
    ann.come_up()
    box.run(48, JOBS)
    assert ann.reservations()[0].held == ["0", "1"]
    box.run(2, JOBS)
    assert len(bob.executor.running) == 4


def test_a_reservation_whose_supervisor_was_killed_is_asked_for_again(
    box: Box, ann: Member
) -> None:
    ann.reserve(2, for_s=100)
    box.run(1, JOBS)
    ann.crash(supervisor_too=True)
    assert ann.holds() == []
    box.run(1, JOBS)
    assert ann.reservations()[0].held == ["0", "1"]


def test_a_supervisor_without_a_daemon_keeps_reserved_gpus_until_their_end(
    box: Box, ann: Member
) -> None:
    ann.reserve(1, for_s=100)
    box.run(1, JOBS)
    ann.executor.lose_client()
    assert ann.holds() == ["GPU-0"]
    ann.now += 100
    ann.executor.lose_client()
    assert ann.holds() == []


def test_a_reservation_that_is_over_when_the_daemon_comes_back_holds_nothing(
    box: Box, ann: Member
) -> None:
    ann.reserve(2, for_s=10)
    ann.go_down()
    box.run(20, JOBS)
    ann.come_up()
    box.run(1, JOBS)
    assert ann.holds() == []
    assert ann.reservations() == []


def test_overlapping_reservations_add_up_and_one_can_be_ended(box: Box, ann: Member) -> None:
    ann.reserve(1, for_s=100)
    ann.reserve(2, for_s=50)
    box.run(1, JOBS)
    assert len(ann.holds()) == 3
    first, second = ann.reservations()
    assert (first.held, second.held) == (["0"], ["1", "2"])
    ann.end_reservation(1)
    box.run(1, JOBS)
    assert len(ann.holds()) == 2
    box.run(50, JOBS)
    assert ann.holds() == []


def test_jobs_on_reserved_gpus_go_on_after_the_end(box: Box, ann: Member, bob: Member) -> None:
    ann.reserve(1, for_s=10)
    ann.add("train")
    bob.add(*["train"] * 3)
    box.run(15, {"ann": 100.0, "bob": 100.0})
    assert ann.executor.running == ["1.1"]
    assert not box.notices["ann"].reserved


def test_the_rules_of_the_machine_come_first(box: Box, ann: Member) -> None:
    ann.reserve(3, for_s=100)
    box.run(1, JOBS)
    course = Reservation(gpus=frozenset("01"), users=("root",), name="the course")
    box.file.rules = BoxRules(reservations=(course,))
    box.run(2, JOBS)
    assert ann.holds() == ["GPU-2", "GPU-3"]
    assert "GPU 0 is for the course only" in str(ann.reservations()[0].waits_for)
    box.file.rules = BoxRules(limits=Limits(gpus=1))
    box.run(2, JOBS)
    assert len(ann.holds()) == 1
    box.file.rules = BoxRules(limits=Limits(reserve_s=0.0))
    box.run(2, JOBS)
    assert ann.holds() == []
    assert "the rules of this machine have ended it" in str(ann.reservations()[0].waits_for)


def test_a_run_of_the_same_user_uses_reserved_gpus_and_keeps_them(
    box: Box, ann: Member, bob: Member
) -> None:
    ann.add(*["train"] * 40)
    box.run(99, JOBS)
    ann.reserve(1, for_s=90)
    bob.add(*["train"] * 400)
    box.run(5, JOBS)
    assert len(ann.holds()) == 1
    run = box.add("run", 401001)
    run.add(*["train"] * 6)
    box.run(1, JOBS)
    assert (len(run.executor.running), ann.holds()) == (1, [])
    assert ann.reservations()[0].elsewhere == 1
    box.run(50, JOBS)
    assert (len(run.executor.running), ann.holds()) == (1, [])
    assert "GPU 0 is reserved by 401001 until" in bob.why(400)


def test_reserved_gpus_come_back_when_a_run_of_the_same_user_is_over(
    box: Box, ann: Member, bob: Member
) -> None:
    ann.add(*["train"] * 40)
    box.run(99, JOBS)
    ann.reserve(1, for_s=90)
    bob.add(*["train"] * 400)
    run = box.add("run", 401001)
    run.add("train", "train")
    box.run(19, JOBS)
    assert (len(run.executor.running), ann.holds()) == (1, [])
    box.run(12, JOBS)
    assert (len(run.executor.running), len(ann.holds())) == (0, 1)


def test_two_queues_of_a_user_do_not_take_reserved_gpus_from_each_other(
    box: Box, ann: Member
) -> None:
    other = box.add("other", 401001)
    ann.reserve(4, for_s=100)
    box.run(1, JOBS)
    other.reserve(1, for_s=100)
    begun = box.version
    box.run(30, JOBS)
    assert len(ann.holds()) == 4
    assert box.version - begun < 10


def test_a_notice_about_gpus_that_another_holds_is_not_believed(
    box: Box, ann: Member, bob: Member
) -> None:
    ann.add(*["train"] * 4)
    box.run(1, JOBS)
    box.notices["liar"] = Notice(reserved={"GPU-0": int(box.now) + 60})
    box.uids["liar"] = 401666
    box.version += 1
    bob.add("test")
    box.run(1, JOBS)
    assert "reserved" not in bob.why(1)


def test_crashes_of_daemons_lose_no_gpu_that_a_reservation_had(box: Box) -> None:
    dice = random.Random(19)
    users = {f"user{number}": dice.choice((0.5, 2.0, 5.0)) for number in range(4)}
    for uid, name in enumerate(users, 402_000):
        box.add(name, uid).add(*["train"] * 400)
    checked = 0
    for _ in range(500 if LONG else 60):
        before = {
            name: {each.id for each in member.reservations() if each.held}
            for name, member in box.members.items()
        }
        box.run(dice.uniform(0.1, 3.0), users)
        for name, member in box.members.items():
            left = before[name] & {each.id for each in member.reservations()}
            checked += len(left)
            assert len(member.holds()) >= len(left), (name, member.reservations())
        member = dice.choice([*box.members.values()])
        if dice.random() < 0.4:
            with contextlib.suppress(ConflictError):
                member.reserve(1, for_s=dice.uniform(3, 30), after_s=dice.choice((0, 5)))
        else:
            member.crash(supervisor_too=False)
    assert checked > 10
    assert box.longest_idle_s <= 2.0


def test_a_slot_of_several_gpus_is_kept_as_a_whole(make_harness: MakeHarness) -> None:
    pairs = (Slot(0, ("0", "1"), ("GPU-0", "GPU-1")), Slot(1, ("2", "3"), ("GPU-2", "GPU-3")))
    board = FakeBoard(Box(Path(), gpus=0), 401001, "ann")
    harness = make_harness(gpus=pairs, board=board)
    harness.context.reservations.add(1, harness.now, harness.now + 10)
    harness.settle()
    assert harness.executor.leased == {"GPU-0", "GPU-1"}
    harness.context.reservations.add(2, harness.now, harness.now + 20)
    harness.settle()
    assert len(harness.executor.leased) == 4
    harness.wait(10)
    assert harness.executor.leased == {"GPU-0", "GPU-1"}
    harness.wait(10)
    assert harness.executor.leased == set()


def test_a_reserved_gpu_is_kept_when_the_jobs_that_shared_it_have_ended(
    make_harness: MakeHarness,
) -> None:
    board = FakeBoard(Box(Path(), gpus=0), 401001, "ann")
    harness = make_harness(gpus=1, board=board)
    Machine(harness)
    harness.context.reservations.add(1, harness.now, harness.now + 100)
    harness.add("train", "train", share="auto", gpu_mem_bytes=6 * 2**30)
    harness.wait(20)
    assert len(harness.executor.running) == 2
    harness.end("1.1")
    harness.end("2.1")
    assert harness.executor.leased == {"GPU-0"}
    harness.add("train")
    assert len(harness.executor.running) == 1
    harness.end("3.1")
    harness.wait(80)
    assert harness.executor.leased == set()


def test_without_reservations_a_user_alone_tells_nothing(box: Box, ann: Member) -> None:
    ann.add(*["train"] * 100)
    box.run(5, JOBS)
    told = box.version
    box.run(50, JOBS)
    assert box.version == told
    ann.reserve(1, for_s=20)
    box.run(1, JOBS)
    assert len(box.notices["ann"].reserved) == 1
    box.run(20, JOBS)
    assert box.notices["ann"].reserved == {}
    told = box.version
    box.run(50, JOBS)
    assert box.version == told
