"""Runs that share fake GPUs: the real program, daemon, driver calls and processes."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from integration.forking import ForkingQueue, ForkingStoker
from stoker.testing.state import GIB

if TYPE_CHECKING:
    from conftest import FakeMachine
    from integration.daemon_fixture import Queue
    from integration.fork_server import ForkServer

TESTS = Path(__file__).parents[1]
TRAIN = "python -m stoker.testing.train --sm 10 --mem {} --seconds {} --steps 4 --fail-at {{x}}"


@pytest.fixture
def queue(tmp_path: Path, fake_gpus: FakeMachine, fork_server: ForkServer) -> Iterator[Queue]:
    """Return a queue on four fake GPUs of 24 GiB, without a daemon."""
    stoker = ForkingStoker(tmp_path, fake_gpus(4, 24 * GIB), fork_server)
    stoker.env["PATH"] = f"{sys.prefix}/bin:{stoker.env['PATH']}"
    queue = ForkingQueue(stoker)
    yield queue
    queue.close()
    stoker.close()


def sweep(queue: Queue, memory: str, seconds: float, runs: int, *words: str) -> None:
    command = TRAIN.format(memory, seconds)
    queue.ok("sweep", command, f"x=range(100,{100 + runs})", *words)


def let(queue: Queue, runs: range) -> None:
    """Let runs of a sweep begin to train that wait for it."""
    for x in runs:
        queue.stoker.file(f"go{x}", "")


def slots(queue: Queue) -> list[dict[str, Any]]:
    found = json.loads(queue.ok("status", "--json"))["slots"]
    assert isinstance(found, list)
    return found


def crowds(queue: Queue) -> list[int]:
    return [len(slot["jobs"]) for slot in slots(queue)]


def sums_hold(queue: Queue) -> bool:
    """See that no GPU is promised beyond what it has, and that as many run as are promised room."""
    for slot in slots(queue):
        if slot["shared"] is not None:
            shared = slot["shared"]
            assert shared["reserved_bytes"] <= shared["capacity_bytes"]
    return True


def test_forty_runs_begin_one_to_a_gpu_and_then_four_share_each(queue: Queue) -> None:
    command = f"until [ -e go{{x}} ]; do sleep 0.1; done; {TRAIN.format('5G', 1)}"
    queue.ok("sweep", command, "x=range(100,140)")
    queue.until(lambda: crowds(queue) == [1, 1, 1, 1], "the first go one to a GPU")
    assert "has the whole GPU" in queue.ok("why", "40")

    # By the half of them all is learned: the other half gets no more than it needs, and stays.
    let(queue, range(100, 120))
    queue.until(lambda: sums_hold(queue) and crowds(queue) == [4, 4, 4, 4], "four share each")
    assert "of 23.3 GiB are set aside for 4 there" in queue.ok("why", "40")
    assert "set aside" in queue.ok("gpus")
    queue.kill_daemon()
    queue.until(lambda: sums_hold(queue) and crowds(queue) == [4, 4, 4, 4], "and after a crash")

    let(queue, range(120, 140))
    queue.ok("wait")
    jobs = queue.ls("-a")
    assert Counter(job["state"] for job in jobs.values()) == {"done": 40}
    assert {job["attempt"] for job in jobs.values()} == {1}


def install_torch(queue: Queue, folder: Path, version: str) -> None:
    """Let jobs find a torch of this version, whichever is installed beside the tests."""
    (folder / "torch").mkdir()
    (folder / "torch" / "version.py").write_text(f"__version__ = '{version}'\n")
    queue.stoker.env["PYTHONPATH"] = f"{queue.stoker.env.get('PYTHONPATH', '')}:{folder}"


def test_who_outgrows_its_room_and_who_runs_out_beside_it_both_end_well(
    queue: Queue, tmp_path: Path
) -> None:
    install_torch(queue, tmp_path, "2.9.0")  # which keeps to no cap
    queue.start("0")
    sweep(queue, "2G", 1.5, 3, "--name", "known")
    queue.ok("wait")
    # Of the same kind by their commands: only numbers differ.
    sweep(queue, "13G", 3, 2, "--name", "liars")
    queue.ok("wait")

    liars = [queue.show(job) for job in (4, 5)]
    assert [job["state"] for job in liars] == ["done", "done"]
    tries = sorted(len(job["attempts"]) for job in liars)
    assert tries == [1, 2]
    victim = max(liars, key=lambda job: len(job["attempts"]))
    assert victim["attempts"][0]["failure"] == "gpu_oom"
    assert "ran out of memory beside others with" in victim["attempts"][0]["reason"]
    assert "attempt 1 failed: exit 1: GPU out of memory" in queue.ok("why", str(victim["id"]))


def test_torch_itself_keeps_a_job_within_its_room_and_it_gets_more_if_it_needs_it(
    queue: Queue, tmp_path: Path
) -> None:
    install_torch(queue, tmp_path, "2.11.0+cu130")
    queue.ok("daemon", "start", "--gpus", "0")
    train = ["python", "-m", "stoker.testing.train", "--steps", "4", "--mem"]
    share = ["--share", "auto", "--gpu-mem"]
    queue.ok("add", *share, "4G", "--", *train, "3G", "--seconds", "60")
    queue.ok("add", *share, "4G", "--", *train, "6G", "--seconds", "1")
    queue.until(lambda: queue.show(2)["state"] == "done")

    refused, again = queue.show(2)["attempts"]
    assert refused["failure"] == "gpu_oom"
    assert "ran out of memory capped at 4.0 GiB: again with 6.6 GiB" in refused["reason"]
    assert again["reserved_bytes"] == int(6.6 * GIB)
    assert "4.0 GiB set aside, capped (declared)" in queue.ok("show", "1")
    assert "/4.0 GiB capped" in queue.ok("ls")
    assert "1 capped" in queue.ok("status")
    queue.kill_daemon()
    queue.until(lambda: "4.0 GiB set aside, capped" in queue.ok("show", "1"), "known after a crash")
    queue.ok("kill", "1")


def test_lines_of_a_foreground_run_share_too(queue: Queue) -> None:
    train = "python -m stoker.testing.train --sm 10 --mem 5G --seconds 1.2 --steps 3"
    ended = queue.stoker.run("--share", "auto", "--gpus", "0", lines=f"{train}\n" * 4)
    assert ended.code == 0, ended.err
    (folder,) = queue.stoker.folders()
    with contextlib.closing(sqlite3.connect(folder / "run.db")) as db:
        times = db.execute(
            "SELECT slots, started_at_us, ended_at_us FROM job ORDER BY id"
        ).fetchall()
    assert {slots for slots, _begun, _over in times} == {"0"}
    first, *others = times
    assert all(begun >= first[2] for _slots, begun, _over in others)
    assert max(begun for _slots, begun, _over in others) < min(over for *_rest, over in others)


@pytest.mark.parametrize("tag", [[], ["--tag"]])
def test_a_victim_whose_output_is_kept_nowhere_is_tried_again_alone(
    queue: Queue, tag: list[str]
) -> None:
    hold = "python -c 'from integration.calls import *; hold_too_much_for_two(0)'"
    queue.stoker.env["PYTHONPATH"] = f"{queue.stoker.env.get('PYTHONPATH', '')}:{TESTS}"
    share = ["--share", "always:2", "--gpus", "0"]
    ended = queue.stoker.run(*share, *tag, lines=f"{hold}\n" * 2)
    assert ended.code == 0, ended.err
    (folder,) = queue.stoker.folders()
    with contextlib.closing(sqlite3.connect(folder / "run.db")) as db:
        (reason,) = db.execute("SELECT reason FROM earlier_attempt").fetchall()
    assert reason == ("exit 1; failed beside others, and no log tells why: again on a GPU alone",)


def test_lines_that_a_resumed_run_has_left_share_too(queue: Queue) -> None:
    train = "python -m stoker.testing.train --sm 10 --mem 5G --seconds 0.5 --steps 3"
    file = queue.stoker.file("jobs.txt", "true\n" * 3 + f"[ -e go ] && {train}\n" * 2)
    share = ["--share", "auto", "--gpu-mem", "5G", "--gpus", "0"]
    assert queue.stoker.run(file, *share).code == 1
    queue.stoker.file("go", "")

    ended = queue.stoker.run(file, *share, "--resume")

    assert ended.code == 0, ended.err
    assert "2 done, 3 had succeeded before" in ended.err


def test_what_cannot_be_is_refused_in_one_line(queue: Queue) -> None:
    queue.start(None)
    for words, says in (
        (
            ("--gpu-mem", "30G"),
            "30.0 GiB of GPU memory, and the largest GPU here has 24.0",
        ),
        (("--gpu-mem", "lots"), "--gpu-mem: 'lots' is not an amount of memory"),
        (
            ("--share", "maybe"),
            "--share: 'maybe' is not a sharing mode: auto, never, free or always:N",
        ),
    ):
        ended = queue("add", *words, "true")
        assert (ended.code, ended.out) == (2, "")
        assert says in ended.err
        assert ended.err.count("\n") == 1
    assert queue.ls() == {}
