"""MPS: a daemon for each GPU that is asked for, none when nobody is left, and victims told from culprits."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.core.job import Attempt, Request
from stoker.core.slot import Slot
from stoker.engine.mps import CONTROL, Mps
from stoker.engine.queue import QueueEntry
from stoker.engine.running_attempt import RunningAttempt
from unit.engine.engine_harness import Harness, MakeHarness
from unit.engine.test_retry_policy import FAULT, fail

MakeMps = Callable[[], Mps]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has MPS."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / CONTROL
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m stoker.testing.mps "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A home with a short path, in which nothing is left running."""
    folder = str(tmp_path_factory.mktemp("m"))
    yield folder
    last = Mps(os.path.join(folder, "mps"), print)
    last.find()
    last.retire()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def make_mps(home: str, told: list[str]) -> MakeMps:
    return lambda: Mps(os.path.join(home, "mps"), told.append)


def attempt(key: str, gpus: int = 1) -> RunningAttempt:
    slots = tuple(Slot(n, (str(n),), (f"GPU-{n}",)) for n in range(gpus))
    return RunningAttempt(
        key=key,
        attempt=Attempt.from_key(key),
        entry=QueueEntry(b"train", Request()),
        slots=slots,
    )


def pids(home: str) -> list[int]:
    found = Path(home).glob("mps/*/pipe/*.pid")
    return [int(path.read_text()) for path in found]


@pytest.mark.usefixtures("tools")
def test_the_clients_of_a_gpu_share_one_daemon(home: str, make_mps: MakeMps) -> None:
    mps = make_mps()
    words = mps.serve(attempt("1.1"), ["train"])
    assert mps.serve(attempt("2.1"), ["train"]) == words

    pipe = os.path.join(home, "mps", "GPU-0", "pipe")
    assert words == [
        "/usr/bin/env",
        f"CUDA_MPS_PIPE_DIRECTORY={pipe}",
        "CUDA_VISIBLE_DEVICES=GPU-0",
        "train",
    ]
    assert len(pids(home)) == 1
    assert os.stat(os.path.join(home, "mps")).st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("tools")
def test_a_daemon_goes_when_it_serves_nobody(home: str, make_mps: MakeMps) -> None:
    mps = make_mps()
    mps.serve(attempt("1.1"), ["train"])
    mps.retire()
    assert len(pids(home)) == 1
    mps.leave(attempt("1.1"), now=5.0)
    mps.retire()
    assert pids(home) == []
    assert os.listdir(os.path.join(home, "mps")) == []


@pytest.mark.usefixtures("tools")
def test_the_next_stoker_finds_the_daemon_and_ends_it(home: str, make_mps: MakeMps) -> None:
    make_mps().serve(attempt("1.1"), ["train"])
    before = pids(home)
    successor = make_mps()
    successor.find()
    successor.serve(attempt("2.1"), ["train"])
    assert pids(home) == before
    successor.leave(attempt("2.1"), now=5.0)
    successor.retire()
    assert pids(home) == []


def test_where_there_is_no_mps_jobs_run_without_it_and_that_is_said_once(
    make_mps: MakeMps, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    mps = make_mps()
    assert mps.serve(attempt("1.1"), ["train"]) == ["train"]
    assert mps.serve(attempt("2.1"), ["train"]) == ["train"]
    assert len(told) == 1
    assert told[0].startswith("MPS cannot be started, jobs run without it:")


@pytest.mark.usefixtures("tools")
def test_the_folder_of_a_long_uuid_leaves_room_for_sockets(home: str, make_mps: MakeMps) -> None:
    uuid = "GPU-6f31dd0c-9d23-2a7d-792b-086b31f4abed"
    job = attempt("1.1")
    job.slots = (Slot(0, ("0",), (uuid,)),)
    words = make_mps().serve(job, ["train"])

    assert os.path.join(home, "mps", "GPU-6f31dd0c", "pipe") in words[1]
    assert words[2] == f"CUDA_VISIBLE_DEVICES={uuid}"


def test_a_home_too_deep_for_sockets_is_told(home: str, told: list[str]) -> None:
    mps = Mps(os.path.join(home, "x" * 80), told.append)
    assert mps.serve(attempt("1.1"), ["train"]) == ["train"]
    assert "STOKER_HOME" in told[0]


def test_a_job_on_two_gpus_is_no_client(make_mps: MakeMps) -> None:
    assert make_mps().serve(attempt("1.1", gpus=2), ["train"]) == ["train"]


def test_neighbours_are_those_who_were_there_until_a_moment_ago(make_mps: MakeMps) -> None:
    mps = make_mps()
    first, second = attempt("1.1"), attempt("2.1")
    mps.join(first)
    assert not mps.has_neighbours(first)
    mps.join(second)
    mps.leave(first, now=100.0)
    assert mps.has_neighbours(second)
    mps.leave(attempt("3.1"), now=200.0)
    assert not mps.has_neighbours(second)


@pytest.fixture
def harness(make_harness: MakeHarness, home: str) -> Harness:
    twins = tuple(Slot(n, ("0",), ("GPU-0",)) for n in range(2))
    return make_harness(gpus=twins, mps_folder=os.path.join(home, "mps"))


@pytest.mark.usefixtures("tools")
def test_all_that_a_fault_took_down_run_again_without_mps_and_the_culprit_fails_alone(
    harness: Harness,
) -> None:
    harness.add("culprit", "victim", mps=True)
    assert [launch.argv[0] for launch in harness.executor.launched] == ["/usr/bin/env"] * 2
    fail(harness, "1.1", FAULT)
    fail(harness, "2.1", FAULT)
    assert [harness.column("failure", job) for job in (1, 2)] == [None, None]
    assert all(launch.argv[0] != "/usr/bin/env" for launch in harness.executor.launched[2:])

    fail(harness, "1.2", FAULT)
    fail(harness, "1.3", FAULT)
    fail(harness, "2.2", "", status=0)

    assert harness.states() == {1: "failed", 2: "done"}
    assert harness.attempts(2)[0][2] == (
        "exit 1: GPU fault, its own or that of a job it shared an MPS server with"
    )


@pytest.mark.usefixtures("tools")
def test_jobs_that_did_not_ask_use_mps_where_the_setting_lets_them(home: str) -> None:
    folder = os.path.join(home, "mps")
    assert Mps(folder, print, lambda: True).may_add(attempt("1.1"))
    assert not Mps(folder, print, lambda: True).may_add(attempt("1.1", gpus=2))
    assert not Mps(folder, print, lambda: False).may_add(attempt("1.1"))


def test_jobs_that_did_not_ask_hear_nothing_of_a_machine_without_mps(
    home: str, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert not Mps(os.path.join(home, "mps"), told.append, lambda: True).may_add(attempt("1.1"))
    assert told == []


@pytest.mark.usefixtures("tools")
def test_jobs_that_did_not_ask_leave_room_below_the_limit_of_a_server(home: str) -> None:
    mps = Mps(os.path.join(home, "mps"), print, lambda: True)
    for number in range(40):
        assert mps.may_add(attempt(f"{number}.1"))
        mps.join(attempt(f"{number}.1"))
    assert not mps.may_add(attempt("41.1"))
    mps.leave(attempt("3.1"), now=5.0)
    assert mps.may_add(attempt("41.1"))


@pytest.mark.usefixtures("tools")
def test_an_adopted_attempt_counts_as_a_client_where_its_gpu_has_a_daemon(
    make_mps: MakeMps,
) -> None:
    make_mps().serve(attempt("1.1"), ["train"])
    successor = make_mps()
    successor.adopt(attempt("1.1"))
    assert not successor.is_client(attempt("1.1"))
    successor.find()
    successor.adopt(attempt("1.1"))
    assert successor.is_client(attempt("1.1"))
