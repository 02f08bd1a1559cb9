"""A second user removes, replaces or squats what GPUs are leased by, while a queue holds them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.daemon_fixture import Queue
from security.quick_queue import QuickQueue
from security.second_user import SecondUser
from stoker.gpus.lease_holder import Holder, holder

UNTIL_GO = "until [ -e go ]; do sleep 0.01; done"
# Takes a lease file away and holds the lock of a new one, until it is killed.
REPLACE = """
path = sys.argv[3]
os.unlink(path)
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
os.fchmod(fd, 0o666)
fcntl.flock(fd, fcntl.LOCK_EX)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def squat(second_user: SecondUser, shared_folder: Path) -> Iterator[Path]:
    """Return a lease folder that the second user has made: it may remove all files there."""
    folder = shared_folder / "leases"
    second_user.run("os.mkdir(sys.argv[3]); os.chmod(sys.argv[3], 0o1777)", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def squatted_queue(
    quick_queue: QuickQueue, squat: Path, monkeypatch: pytest.MonkeyPatch
) -> QuickQueue:
    """Return a queue on two GPUs whose leases are in the folder of the second user."""
    quick_queue.env["STOKER_LEASE_DIR"] = str(squat)
    monkeypatch.setenv("STOKER_LEASE_DIR", str(squat))
    quick_queue.start()
    return quick_queue


def lease_file(queue: Queue, folder: Path, gpu: int = 0) -> Path:
    return folder / f"gpu-{queue.stoker.box.gpus()[gpu].uuid}"


def holder_of(queue: Queue, gpu: int = 0) -> Holder | None:
    return holder(queue.stoker.box.gpus()[gpu].uuid)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_lease_that_was_removed_is_taken_again_while_its_job_runs(
    squatted_queue: QuickQueue, squat: Path, second_user: SecondUser, what: str
) -> None:
    queue = squatted_queue
    job = queue.add("--gpus", "2", UNTIL_GO)
    queue.until_running(job)
    before = holder_of(queue)
    assert before is not None
    source = """
    for name in os.listdir(sys.argv[3]):
        os.unlink(os.path.join(sys.argv[3], name))
    if sys.argv[4] == "folder":
        os.rmdir(sys.argv[3])
    """
    second_user.run(source, str(squat), what)

    queue.until(lambda: holder_of(queue), "the lease is held again")

    held = holder_of(queue)
    assert held is not None
    assert (held.pid, held.user) == (before.pid, before.user)
    queue.ok("add", "touch done")
    (queue.work / "go").touch()
    queue.ok("wait", str(job), str(job + 1))


def test_nothing_starts_on_a_gpu_whose_lease_was_replaced_until_it_is_free(
    squatted_queue: QuickQueue, squat: Path, second_user: SecondUser
) -> None:
    queue = squatted_queue
    queue.ok("gpus", "remove", "1")
    first = queue.add(UNTIL_GO)
    second = queue.add("touch second")
    queue.until_running(first)
    thief = second_user.start_until_ready(REPLACE, str(lease_file(queue, squat)))
    queue.until(lambda: "replaced" in queue.ok("status"), "the loss is told")
    assert "replaced" in queue.ok("gpus")

    (queue.work / "go").touch()
    queue.ok("wait", str(first))

    told = queue.ok("why", str(second))
    assert "was removed or replaced while it was held" in told
    assert f"held by {second_user.name}'s" in told
    assert not (queue.work / "second").exists()
    thief.kill()
    queue.ok("wait", str(second))
    assert (queue.work / "second").exists()


def test_a_folder_where_everybody_can_remove_leases_is_refused(
    quick_queue: QuickQueue, shared_folder: Path
) -> None:
    queue = quick_queue
    folder = shared_folder / "leases"
    folder.mkdir()
    os.chmod(folder, 0o777)
    queue.env["STOKER_LEASE_DIR"] = str(folder)
    queue.start()
    job = queue.add("true")

    queue.until(lambda: f"chmod 1777 {folder}" in queue.ok("why", str(job)), "the remedy is told")

    assert f"chmod 1777 {folder}" in queue.ok("status")
    os.chmod(folder, 0o1777)
    queue.ok("wait", str(job))
