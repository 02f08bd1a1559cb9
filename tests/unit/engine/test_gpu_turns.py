from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from scale import LONG
from stoker.core.box_rules import BoxRules, Limits, Reservation
from unit.engine.turn_box import Box

SPAN_S = 3600.0 if LONG else 900.0


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path, gpus=4)
    yield box
    box.close()


def test_two_users_with_endless_jobs_get_equal_parts(box: Box) -> None:
    for name, uid in (("ann", 401001), ("bob", 401002)):
        box.add(name, uid).add(*["train"] * 900)
        box.settle()
    box.run(SPAN_S, {"ann": 10.0, "bob": 10.0})
    ratio = box.members["ann"].used_s / box.members["bob"].used_s
    assert 0.95 <= ratio <= 1.05
    assert box.longest_idle_s <= 2.0


def test_the_single_job_of_a_newcomer_is_next(box: Box) -> None:
    ann, bob = box.add("ann", 401001), box.add("bob", 401002)
    ann.add(*["train"] * 30)
    box.run(25, {"ann": 10.0, "bob": 10.0})
    bob.add("test")
    box.run(1, {"ann": 10.0, "bob": 10.0})
    assert bob.executor.running == []
    assert "your job is next" in bob.why(1)
    box.run(4.01, {"ann": 10.0, "bob": 10.0})
    assert len(bob.executor.running) == 1
    assert len(ann.executor.running) == 3


def test_a_user_alone_keeps_all_gpus(box: Box) -> None:
    ann = box.add("ann", 401001)
    box.add("bob", 401002)
    ann.add(*["train"] * 40)
    box.run(100.5, {"ann": 10.0, "bob": 10.0})
    assert set(ann.states().values()) == {"done"}
    assert ann.used_s == pytest.approx(400, abs=0.1)


def test_three_users_get_parts_by_their_shares(box: Box) -> None:
    box.file.rules = BoxRules(shares={"401003": 2.0})
    lengths = {"ann": 10.0, "bob": 7.0, "eve": 13.0}
    for uid, name in enumerate(lengths, 401001):
        box.add(name, uid).add(*["train"] * 1500)
    box.run(SPAN_S, lengths)
    total = sum(member.used_s for member in box.members.values())
    parts = {name: member.used_s / total for name, member in box.members.items()}
    assert parts == {
        "ann": pytest.approx(0.25, rel=0.05),
        "bob": pytest.approx(0.25, rel=0.05),
        "eve": pytest.approx(0.5, rel=0.05),
    }
    assert box.longest_idle_s <= 2.0


def test_who_has_used_more_waits_until_the_other_has_caught_up(box: Box) -> None:
    ann, bob = box.add("ann", 401001), box.add("bob", 401002)
    ann.add(*["train"] * 200)
    box.run(100, {"ann": 10.0, "bob": 10.0})
    bob.add(*["train"] * 200)
    box.run(60, {"ann": 10.0, "bob": 10.0})
    assert len(bob.executor.running) == 4
    assert "it is their turn" in ann.why(60)
    box.run(200, {"ann": 10.0, "bob": 10.0})
    assert ann.used_s / bob.used_s == pytest.approx(1.0, abs=0.1)


def test_a_user_who_takes_nothing_delays_others_once(box: Box) -> None:
    ann = box.add("ann", 401001)
    ann.add(*["train"] * 100)
    box.post("liar", 401666, wants=4)
    box.run(10.5, {"ann": 10.0})
    assert len(ann.executor.running) == 2
    assert "user 401666 has used 0 GPU-seconds since yesterday, you 40" in ann.why(20)
    box.run(2.0, {"ann": 10.0})
    assert len(ann.executor.running) == 4
    box.run(17.4, {"ann": 10.0})
    assert box.longest_idle_s <= 2.1
    lost_s = 4 * (box.now - 1000.0) - ann.used_s
    assert lost_s <= 2 * 4 * 2.1


def test_a_dead_claim_changes_nothing(box: Box) -> None:
    ann = box.add("ann", 401001)
    ann.add(*["train"] * 100)
    box.post("gone", 401666, wants=4)
    box.dead.add("gone")
    box.run(100, {"ann": 10.0})
    assert ann.used_s == pytest.approx(400, abs=0.1)


def test_two_stokers_of_one_user_alternate(box: Box) -> None:
    for name in ("queue", "run"):
        box.add(name, 401001).add(*["train"] * 400)
    box.run(SPAN_S / 3, {"queue": 10.0, "run": 10.0})
    parts = [member.used_s for member in box.members.values()]
    assert parts[0] / parts[1] == pytest.approx(1.0, abs=0.06)


def test_two_users_who_need_all_gpus_do_not_block_each_other(box: Box) -> None:
    for name, uid in (("ann", 401001), ("bob", 401002)):
        box.add(name, uid).add(*["train"] * 100, gpus=4)
    box.run(400, {"ann": 10.0, "bob": 10.0})
    done = [len([s for s in m.states().values() if s == "done"]) for m in box.members.values()]
    assert min(done) >= 15
    assert sum(done) >= 35


def test_a_job_on_all_gpus_is_not_starved_by_a_stream_of_small_ones(box: Box) -> None:
    ann, bob = box.add("ann", 401001), box.add("bob", 401002)
    ann.add(*["train"] * 400)
    box.run(33, {"ann": 10.0, "bob": 10.0})
    bob.add("train", gpus=4)
    box.run(45, {"ann": 10.0, "bob": 10.0})
    assert set(bob.states().values()) <= {"running", "done"}


def test_a_user_holds_no_more_gpus_than_the_rules_allow(box: Box) -> None:
    box.file.rules = BoxRules(limits=Limits(gpus=3))
    ann = box.add("ann", 401001)
    ann.add(*["train"] * 20)
    box.run(12, {"ann": 10.0})
    assert len(ann.executor.running) == 3
    assert "is over your limit of 3 GPUs" in ann.why(20)
    box.file.rules = BoxRules()
    box.run(2, {"ann": 10.0})
    assert len(ann.executor.running) == 4


def test_gpus_of_others_are_left_alone(box: Box) -> None:
    staff = Reservation(gpus=frozenset("01"), users=("401002",), name="the staff")
    box.file.rules = BoxRules(reservations=(staff,))
    ann, bob = box.add("ann", 401001), box.add("bob", 401002)
    ann.add(*["train"] * 20)
    bob.add(*["train"] * 20)
    box.run(12, {"ann": 10.0, "bob": 10.0})
    assert box.leases()["GPU-0"] == box.leases()["GPU-1"] == "bob"
    assert "GPU 0 is for the staff only" in ann.why(20)


def test_a_job_ends_at_the_time_limit_of_the_box(box: Box) -> None:
    box.file.rules = BoxRules(limits=Limits(job_s=100.0))
    ann = box.add("ann", 401001)
    ann.add("train")
    box.run(101, {"ann": 1000.0})
    assert "over the time limit of 100 s that this machine's rules set" in ann.why(1)


def test_a_preemptible_job_makes_room_after_the_time_that_the_rules_give_it(box: Box) -> None:
    box.file.rules = BoxRules(preemptible_s=30.0)
    ann, bob = box.add("ann", 401001), box.add("bob", 401002)
    ann.add(*["train"] * 4, preemptible=True)
    box.run(100, {"ann": 1000.0, "bob": 10.0})
    bob.add("test")
    box.run(29, {"ann": 1000.0, "bob": 10.0})
    assert len(ann.executor.running) == 4
    box.run(3, {"ann": 1000.0, "bob": 10.0})
    assert len(bob.executor.running) == 1
    assert len(ann.executor.running) == 3


def test_crashes_book_no_gpu_twice_leave_none_idle_and_starve_nobody(tmp_path: Path) -> None:
    users, gpus, rounds = (20, 8, 1000) if LONG else (5, 3, 25)
    dice = random.Random(19)
    box = Box(tmp_path, gpus=gpus)
    lengths = {}
    for number in range(users):
        name = f"user{number}"
        lengths[name] = dice.choice((0.5, 2.0, 5.0))
        box.add(name, 402_000 + number).add(
            *["train"] * (rounds * 3), gpus=dice.choice((1, 1, 1, 2))
        )
    for _ in range(rounds):
        box.run(dice.uniform(0.1, 3.0), lengths)
        victim = dice.choice([*box.members.values()])
        victim.crash(supervisor_too=dice.random() < 0.3)
    box.run(60.0, lengths)  # long enough for everybody's turn
    assert box.longest_idle_s <= 2.0
    assert all(member.used_s > 0 for member in box.members.values())
    box.close()
