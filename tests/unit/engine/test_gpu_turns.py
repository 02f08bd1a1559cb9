from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from scale import LONG
from stoker.core.box_rules import BoxRules, Limits, Reservation
from stoker.core.turns import decay
from unit.engine.test_sharing import Machine
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
    assert len(ann.executor.running) == 0
    assert "user 401666 has used 0 GPU-seconds since yesterday, you 40" in ann.why(20)
    box.run(2.0, {"ann": 10.0})
    assert len(ann.executor.running) == 4
    box.run(17.4, {"ann": 10.0})
    assert box.longest_idle_s <= 1.6  # of two seconds, and the next job has to start
    lost_s = 4 * (box.now - 1000.0) - ann.used_s
    assert lost_s <= 2 * 4 * 1.6


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


def test_all_gpus_are_left_to_a_newcomer_with_many_jobs_at_once(box: Box) -> None:
    ann, bob = box.add("ann", 401001), box.add("bob", 401002)
    ann.add(*["train"] * 100)
    lengths = {"ann": 100.0, "bob": 100.0}
    box.run(1010, lengths)
    bob.add(*["train"] * 3)
    box.run(91, lengths)
    assert len(bob.executor.running) == 3
    assert len(ann.executor.running) == 1


@pytest.mark.parametrize(("first", "second"), [((), ("01", "23")), (("01", "23"), ())])
def test_users_of_single_gpus_and_of_groups_take_turns(
    box: Box, first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    ann, bob = box.add("ann", 401001, *first), box.add("bob", 401002, *second)
    ann.gathers, bob.gathers = bool(first), bool(second)
    lengths = {"ann": 10.0, "bob": 13.0}
    for _ in range(4):  # ends are spread
        ann.add(*["train"] * 50)
        box.run(2.7, lengths)
    bob.add(*["train"] * 200)
    box.run(400, lengths)
    assert box.longest_idle_s <= 2.0
    assert bob.used_s / ann.used_s == pytest.approx(1.0, abs=0.15)
    bob.kill("1-200")
    box.run(1, lengths)
    assert set(box.leases().values()) == {"ann"}


def test_two_users_of_crossing_groups_do_not_block_each_other(box: Box) -> None:
    lengths = {"ann": 10.0, "bob": 10.0}
    for name, uid, groups in (("ann", 401001, ("01", "23")), ("bob", 401002, ("12", "30"))):
        member = box.add(name, uid, *groups)
        member.gathers = True
        member.add(*["train"] * 100)
    box.run(400, lengths)
    used = [member.used_s for member in box.members.values()]
    assert min(used) / max(used) >= 0.9
    assert sum(member.ran_s for member in box.members.values()) >= 0.8 * 4 * 400


def test_gpus_that_no_job_of_a_user_can_use_are_left_to_others(box: Box) -> None:
    ann, bob = box.add("ann", 401001), box.add("bob", 401002)
    ann.config("gpus.p", "0")
    ann.add(*["train"] * 20, project="p")
    box.run(5, {"ann": 1000.0, "bob": 10.0})
    bob.add(*["train"] * 100)
    box.run(100, {"ann": 1000.0, "bob": 10.0})
    assert bob.ran_s == pytest.approx(300, abs=1)


def test_a_shared_gpu_gets_no_more_jobs_while_another_user_is_next(tmp_path: Path) -> None:
    box = Box(tmp_path, gpus=1)
    ann, bob = box.add("ann", 401001), box.add("bob", 401002)
    Machine(ann)
    lengths = {"ann": 10.0, "bob": 10.0}
    for number in range(4):  # the kind becomes known
        ann.add(f"train {number}", share="auto")
        box.run(11, lengths)
    ann.add(*(f"train {number}" for number in range(100)), share="auto")
    box.run(1, lengths)
    for number, key in enumerate(ann.executor.running):
        ann.ends[key] = box.now + 3.0 * number
    box.run(4, lengths)
    assert len(ann.executor.running) == 4
    bob.add("train")
    started = len(ann.executor.launched)
    box.run(14, lengths)
    assert len(ann.executor.launched) == started
    assert bob.executor.running == ["1.1"]
    box.run(12, lengths)
    assert len(ann.executor.running) == 4
    box.close()


@pytest.mark.parametrize("hold_s", [0.002, 0.1, 0.5])
def test_a_user_who_gives_gpus_back_at_once_gains_nothing(box: Box, hold_s: float) -> None:
    ann = box.add("ann", 401001)
    ann.add(*["train"] * 400)
    box.run(105, {"ann": 10.0})
    box.add_snatcher("eve", 401666, hold_s)
    before, eve = ann.ran_s, box.members["eve"]
    box.run(400, {"ann": 10.0})
    held = ann.ran_s - before + eve.used_s
    assert held >= 0.9 * 4 * 400
    assert eve.used_s <= 1.1 * ann.used_s
    seen_s = ann.turns.users.use_of(401666, box.now)
    assert seen_s == pytest.approx(eve.used_s, rel=0.1, abs=1.0)


def test_a_user_who_did_not_take_a_gpu_is_trusted_again_after_using_one(box: Box) -> None:
    ann = box.add("ann", 401001)
    ann.add(*["train"] * 100)
    box.post("bob", 401002, wants=1)
    box.run(15, {"ann": 10.0})
    users = ann.turns.users
    assert users.has_cheated(401002)
    box.dead.add("bob")
    bob = box.add("late", 401002)
    bob.add(*["train"] * 2)
    box.run(40, {"ann": 10.0, "late": 10.0})
    assert set(bob.states().values()) == {"done"}
    assert not users.has_cheated(401002)


def test_use_is_not_counted_while_nobody_is_seen(box: Box) -> None:
    ann, bob = box.add("ann", 401001), box.add("bob", 401002)
    lengths = {"ann": 100.0, "bob": 100.0}
    bob.add(*["train"] * 4)
    box.run(1, lengths)
    ann.add(*["train"] * 4)
    box.run(50, lengths)
    box.dead.add("bob")  # its Stoker ends, its jobs go on
    box.run(200, lengths)
    box.dead.remove("bob")
    bob.add(*["train"] * 4)
    box.run(3600, lengths)
    ann.add("train")
    box.run(10, lengths)
    assert ann.turns.users.use_of(401002, box.now) == pytest.approx(decay(800, 3600), abs=20)


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


def test_stokers_of_one_user_share_the_gpus_that_the_rules_allow(box: Box) -> None:
    box.file.rules = BoxRules(limits=Limits(gpus=2))
    lengths = {"queue": 10.0, "run": 10.0, "bob": 10.0}
    one, other, bob = box.add("queue", 401001), box.add("run", 401001), box.add("bob", 401002)
    for member in (one, other, bob):
        member.add(*["train"] * 100)
    for _ in range(200):
        box.run(1, lengths)
        held = Counter(box.leases().values())
        assert held["queue"] + held["run"] <= 2
        assert held["bob"] == 2  # a claim to GPUs over the limit is not for him
    assert one.ran_s / other.ran_s == pytest.approx(1.0, abs=0.15)
    assert one.ran_s + other.ran_s >= 0.95 * 2 * 200


def test_of_stokers_that_hold_too_much_together_one_gives_back(box: Box) -> None:
    one, other = box.add("queue", 401001), box.add("run", 401001)
    one.add(*["train"] * 100)
    box.run(1, {"queue": 10.0, "run": 10.0})
    other.add(*["train"] * 100)
    box.run(50, {"queue": 10.0, "run": 10.0})
    assert len(one.executor.running) == len(other.executor.running) == 2
    box.file.rules = BoxRules(limits=Limits(gpus=2))
    box.run(30, {"queue": 10.0, "run": 10.0})
    for _ in range(60):
        box.run(1, {"queue": 10.0, "run": 10.0})
        assert len(box.leases()) == 2


def test_gpus_of_others_are_left_alone(box: Box) -> None:
    staff = Reservation(gpus=frozenset("01"), users=("401002",), name="the staff")
    box.file.rules = BoxRules(reservations=(staff,))
    ann, bob = box.add("ann", 401001), box.add("bob", 401002)
    ann.add(*["train"] * 20)
    bob.add(*["train"] * 20)
    box.run(12, {"ann": 10.0, "bob": 10.0})
    assert box.leases()["GPU-0"] == box.leases()["GPU-1"] == "bob"
    assert "GPU 0 is for the staff only" in ann.why(20)


def test_rules_count_for_gpus_that_are_named_by_their_uuids(box: Box) -> None:
    box.file.rules = BoxRules(
        reservations=(Reservation(gpus=frozenset("12"), users=("401002",), name="the staff"),)
    )
    ann = box.add("ann", 401001, "01", "3")
    for state, cards in zip(ann.engine.slot_table.states, (("0", "1"), ("3",)), strict=True):
        names = tuple(f"GPU-{card}" for card in cards)
        state.slot = msgspec.structs.replace(state.slot, gpus=names, cards=cards)
    ann.add("train", "train")
    box.run(5, {"ann": 10.0})
    assert [*box.leases()] == ["GPU-3"]
    assert "GPU GPU-0+GPU-1 is for the staff only" in ann.why(2)


def test_a_time_limit_of_the_box_that_changes_counts_for_running_jobs(box: Box) -> None:
    ann = box.add("ann", 401001)
    ann.add("train", "train", timeout_s=300.0)
    box.run(50, {"ann": 1000.0})
    box.file.rules = BoxRules(limits=Limits(job_s=100.0))
    box.file.has_changed = True
    box.run(40, {"ann": 1000.0})
    assert len(ann.executor.running) == 2
    box.file.rules = BoxRules(limits=Limits(job_s=200.0))
    box.file.has_changed = True
    box.run(100, {"ann": 1000.0})
    assert len(ann.executor.running) == 2
    box.run(20, {"ann": 1000.0})
    assert "over the time limit of 3m20s that this machine's rules set" in ann.why(1)
    ann.add("train", timeout_s=300.0)
    box.file.rules = BoxRules()
    box.file.has_changed = True
    box.run(299, {"ann": 1000.0})
    assert len(ann.executor.running) == 1


def test_a_job_ends_at_the_time_limit_of_the_box(box: Box) -> None:
    box.file.rules = BoxRules(limits=Limits(job_s=100.0))
    ann = box.add("ann", 401001)
    ann.add("train")
    box.run(101, {"ann": 1000.0})
    assert "over the time limit of 1m40s that this machine's rules set" in ann.why(1)


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


def test_one_waiting_job_ends_no_more_than_one_preemptible_job(box: Box) -> None:
    box.file.rules = BoxRules(preemptible_s=30.0)
    ann, bob = box.add("ann", 401001), box.add("bob", 401002)
    ann.add(*["train"] * 4, preemptible=True)
    lengths = {"ann": 1000.0, "bob": 10.0}
    box.run(100, lengths)
    bob.add("test")
    box.run(60, lengths)
    assert bob.states() == {1: "done"}
    assert sorted(len(ann.attempts(job)) for job in range(1, 5)) == [
        0,
        0,
        0,
        1,
    ]  # those that are over
    bob.add("test", "test")
    box.run(60, lengths)
    assert set(bob.states().values()) == {"done"}
    assert sum(len(ann.attempts(job)) for job in range(1, 5)) == 3


@pytest.mark.timeout(3600 if LONG else 120)
def test_crashes_book_no_gpu_twice_leave_none_idle_and_starve_nobody(tmp_path: Path) -> None:
    users, gpus, rounds = (20, 8, 1000) if LONG else (5, 3, 25)
    dice = random.Random(19)
    box = Box(tmp_path, gpus=gpus)
    lengths = {}
    for number in range(users):
        name, wanted = f"user{number}", dice.choice((1, 1, 1, 2))
        lengths[name] = dice.choice((0.5, 2.0, 5.0))
        member = box.add(name, 402_000 + number)
        member.gathers = wanted > 1
        member.add(*["train"] * (rounds * 3), gpus=wanted)
    for _ in range(rounds):
        box.run(dice.uniform(0.1, 3.0), lengths)
        victim = dice.choice([*box.members.values()])
        victim.crash(supervisor_too=dice.random() < 0.3)
    box.run(60.0, lengths)  # long enough for a turn of each user
    assert box.longest_idle_s <= 2.0
    parts = [member.used_s for member in box.members.values()]
    print(sorted(parts), sorted(member.ran_s for member in box.members.values()))
    assert min(parts) > 0.5 * sum(parts) / users
    box.close()


def test_a_job_on_three_gpus_is_not_starved_by_a_user_with_equal_use(box: Box) -> None:
    ann, bob = box.add("ann", 401001), box.add("bob", 401002)
    ann.gathers = True
    lengths = {"ann": 10.0, "bob": 10.0}
    for _ in range(4):
        bob.add(*["train"] * 50)
        box.run(2.6, lengths)
    ann.add(*["train"] * 50, gpus=3)
    box.run(600, lengths)
    assert ann.ran_s >= 0.4 * bob.ran_s
    assert ann.ran_s + bob.ran_s >= 0.6 * 4 * 600


def test_several_users_of_large_and_small_jobs_all_get_on(box: Box) -> None:
    wanted = {"ann": 4, "bob": 1, "cat": 1, "dan": 2, "eve": 3}
    lengths = {"ann": 10.0, "bob": 31.0, "cat": 7.0, "dan": 13.0, "eve": 17.0}
    for number, (name, gpus) in enumerate(wanted.items()):
        member = box.add(name, 401001 + number)
        member.gathers = gpus > 1
        member.add(*["train"] * 300, gpus=gpus)
    box.run(SPAN_S / 3, lengths)
    ran = [member.ran_s for member in box.members.values()]
    used = [member.used_s for member in box.members.values()]
    assert min(used) >= 0.75 * max(used)
    assert sum(ran) >= 0.85 * 4 * SPAN_S / 3
    assert box.longest_idle_s <= 2.0
