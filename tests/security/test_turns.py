"""Turns between real users of the machine: their daemons are real, their GPUs are not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from patience import until
from security.members import Member, make_gpus
from security.second_user import SecondUser, make_second_user, remove_second_user


@pytest.fixture
def members(
    account: SecondUser, shared_folder: Path, leases: Path, nvml_library: str
) -> Iterator[Callable[[SecondUser], Member]]:
    box = make_gpus(shared_folder / "nvml", nvml_library, 2)
    made: list[Member] = []

    def make(user: SecondUser) -> Member:
        made.append(Member(user, shared_folder, leases, box))
        return made[-1]

    yield make
    for member in made:
        member.close()


@pytest.fixture
def third_user(account: SecondUser) -> Iterator[SecondUser]:
    user = make_second_user(f"stokerthird{os.getpid()}")
    yield user
    remove_second_user(user)


def test_the_single_job_of_another_user_comes_before_the_rest_of_a_sweep(
    account: SecondUser, third_user: SecondUser, members: Callable[[SecondUser], Member]
) -> None:
    ann, bob = members(account), members(third_user)
    ann.ok("add", "--batch", "-", stdin="sleep 0.7\n" * 40)
    until(lambda: list(ann.states().values()).count("done") >= 4, "the first jobs are done")
    bob.ok("add", "sleep 0.1")
    bob.ok("wait", "1")
    states = list(ann.states().values())
    assert states.count("waiting") >= 15
    shown = bob.ok("gpus")
    assert account.name in shown
    assert "RECENT USE" in shown


def test_reserved_gpus_are_for_their_user_alone_until_the_reservation_ends(
    account: SecondUser, third_user: SecondUser, members: Callable[[SecondUser], Member]
) -> None:
    ann, bob = members(account), members(third_user)
    assert ann.ok("reserve", "2", "--for", "1h").endswith("; GPU 0, 1\n")
    bob.ok("add", "true")
    until(lambda: f"GPU 1 is reserved by {account.name} until" in bob.ok("why", "1"), "bob sees it")
    assert bob.ok("gpus").count(", reserved until") == 2
    ann.ok("add", "true")
    ann.ok("wait", "1")
    assert bob.states() == {1: "waiting"}
    ann.ok("reserve", "--end", "1")
    bob.ok("wait", "1")

    ann.ok("reserve", "2", "--for", "2s")
    bob.ok("add", "true")
    bob.ok("wait", "2")
    until(lambda: ann.ok("reserve").startswith("nothing is reserved"), "it has ended")
    assert "reserved" not in bob.ok("gpus")


ATTACK = """
folder, others = sys.argv[3], sys.argv[4:6]
def path(n, uid=os.getuid()): return f"{folder}/turn-{uid}-{n:016x}"
held = []
for n, content in enumerate([b"\\xff\\x00" * 50, b"[" * 9000, b'{"wants": "all"}', b"{}"]):
    with open(path(n), "wb") as file:
        file.write(content)
    held.append(open(path(n), "rb"))
    fcntl.flock(held[-1], fcntl.LOCK_EX)
os.mkfifo(path(100))
os.symlink("/dev/zero", path(101))
os.mkdir(path(102))
for n in range(3000):
    for uid in others:
        open(path(n, uid), "w").close()
print("ready", flush=True)
while True:
    open(path(103), "w").close()
    os.unlink(path(103))
    time.sleep(0.0005)
"""


def test_bad_turn_files_and_floods_of_another_user_change_nothing(
    account: SecondUser,
    third_user: SecondUser,
    members: Callable[[SecondUser], Member],
    leases: Path,
) -> None:
    ann, bob = members(account), members(third_user)
    attacker = make_second_user(f"stokerbad{os.getpid()}")
    try:
        attacker.start_until_ready(ATTACK, str(leases), str(account.uid), str(third_user.uid))
        ann.ok("add", "--batch", "-", stdin="sleep 0.7\n" * 60)
        until(lambda: list(ann.states().values()).count("done") >= 4, "the first jobs are done")
        bob.ok("add", "sleep 0.1")
        bob.ok("wait", "1")
        assert list(ann.states().values()).count("waiting") >= 20
        assert account.name in ann.ok("gpus")
    finally:
        remove_second_user(attacker)


def test_rules_of_the_machine_are_followed_and_a_wrong_file_changes_nothing(
    account: SecondUser, members: Callable[[SecondUser], Member], leases: Path
) -> None:
    ann = members(account)
    rules = leases / "box.toml"
    rules.write_text('[[reservations]]\ngpus = "0"\nfor = ["root"]\n')
    rules.chmod(0o644)
    assert ann.ok("gpus", "--rules") == "GPU 0: for root only\n"
    ann.ok("add", "--batch", "-", stdin="sleep 600\n" * 2)
    until(lambda: sorted(ann.states().values()) == ["running", "waiting"], "one job runs")
    until(lambda: "GPU 0 is for root only" in ann.ok("why", "2"), "the rule is told")
    rules.write_text('[[reservations]]\ngpus = "none"\nfor = ["root"]\n')
    wrong = f"{rules}, line 2: gpus: write the numbers of GPUs"
    until(lambda: wrong in ann.ok("status"), "the mistake is told")
    assert sorted(ann.states().values()) == ["running", "waiting"]
    rules.unlink()
    until(lambda: set(ann.states().values()) == {"running"}, "both jobs run")
