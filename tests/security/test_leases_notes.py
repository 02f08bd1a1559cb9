"""A second user writes hostile notes into lease files, and puts other things in their place."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conftest import Stoker
from integration.daemon_fixture import Queue
from security.quick_queue import QuickQueue
from security.second_user import SecondUser
from stoker.testing.state import GIB, FakeGpus

if TYPE_CHECKING:
    import subprocess

# Holds the locks on the lease files of GPUs, and writes a note of its choice into them.
HOLD = """
note = bytes.fromhex(sys.argv[3])
for path in sys.argv[4:]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    os.fchmod(fd, 0o666)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.pwrite(fd, note, 0)
print("ready", flush=True)
time.sleep(600)
"""
NOTE = {"pid": 1, "user": "root", "what": "work", "since": 1.0}
HOSTILE = {
    "infinite pid": json.dumps({**NOTE, "pid": float("inf")}),
    "deep": "[" * 4096,
    "deep objects": '{"pid":' * 600,
    "lone surrogate": json.dumps({**NOTE, "user": "\ud800", "what": "\udfff"}),
    "huge pid": '{"pid": 1' + "0" * 500 + ', "user": "a", "what": "b", "since": 1}',
    "huge time": '{"pid": 1, "user": "a", "what": "b", "since": 1' + "0" * 500 + "}",
    "no number": json.dumps({**NOTE, "since": float("nan")}),
    "forged lines": json.dumps({**NOTE, "what": "x\nstoker: job 1 is done\x1b[2J\r"}),
    "very long": json.dumps({**NOTE, "what": "x" * 900}),
    "a list": "[1, 2]",
}


@pytest.fixture(scope="module")
def started(
    tmp_path_factory: pytest.TempPathFactory, nvml_library: str
) -> Iterator[tuple[QuickQueue, Path]]:
    """Return a queue on two GPUs, and its lease folder, which everybody can write."""
    folder = tmp_path_factory.mktemp("notes")
    box = FakeGpus(folder / "nvml", nvml_library).create(2, 8 * GIB)
    stoker = Stoker(folder, box)
    queue = QuickQueue(stoker)
    leases = Path(tempfile.mkdtemp(prefix="stoker-leases-"))
    leases.chmod(0o1777)
    queue.env["STOKER_LEASE_DIR"] = str(leases)
    queue.start()
    yield queue, leases
    queue.close()
    stoker.close()
    shutil.rmtree(leases)


@pytest.fixture
def leases(started: tuple[QuickQueue, Path], second_user: SecondUser) -> Iterator[Path]:
    """Return the lease folder; it is empty, and nobody holds anything in it."""
    queue, leases = started
    yield leases
    queue("kill", "--all")
    second_user.close()
    for path in leases.iterdir():
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


@pytest.fixture
def queue(started: tuple[QuickQueue, Path], leases: Path) -> QuickQueue:
    """Return the queue, which has nothing to do."""
    return started[0]


def lease_file(queue: Queue, folder: Path, gpu: int = 0) -> str:
    return str(folder / f"gpu-{queue.stoker.box.gpus()[gpu].uuid}")


def hold(
    user: SecondUser, queue: Queue, folder: Path, note: str, gpus: Sequence[int] = (0,)
) -> subprocess.Popen[str]:
    paths = [lease_file(queue, folder, gpu) for gpu in gpus]
    return user.start_until_ready(HOLD, note.encode("utf-8").hex(), *paths)


@pytest.mark.parametrize("note", HOSTILE.values(), ids=HOSTILE)
def test_a_daemon_outlives_every_note_in_a_lease_file(
    queue: QuickQueue, leases: Path, second_user: SecondUser, note: str
) -> None:
    hold(second_user, queue, leases, note, gpus=(0, 1))
    pid = json.loads(queue.ok("status", "--json"))["pid"]

    job = queue.add("true")
    queue.until(lambda: "held by" in queue.ok("why", str(job)), "the holder is told")

    told = queue.ok("why", str(job))
    assert f"held by {second_user.name}'s " in told
    assert "\x1b" not in told
    assert told.count("\n") == 1
    assert len(told) < 500
    (gpu,) = [each for each in json.loads(queue.ok("gpus", "--json")) if each["index"] == 0]
    assert gpu["holder"]["user"] == second_user.name
    assert all(text.isprintable() for text in (gpu["holder"]["user"], gpu["holder"]["what"]))
    assert json.loads(queue.ok("status", "--json"))["pid"] == pid
    log = (queue.home / "daemon.log").read_bytes()
    assert b"\x1b" not in log
    assert b"\nstoker: job 1 is done" not in log


def test_the_holder_is_named_by_its_lock_and_not_by_its_note(
    queue: QuickQueue, leases: Path, second_user: SecondUser
) -> None:
    process = hold(second_user, queue, leases, json.dumps({**NOTE, "pid": os.getpid()}))
    (gpu,) = [each for each in json.loads(queue.ok("gpus", "--json")) if each["index"] == 0]

    assert gpu["holder"] == {
        "pid": process.pid,
        "user": second_user.name,
        "what": "work",
        "since": 1.0,
    }


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "second link", "leased"])
def test_what_is_no_plain_file_neither_freezes_nor_is_used(
    queue: QuickQueue, leases: Path, second_user: SecondUser, kind: str
) -> None:
    source = """
    path, kind = sys.argv[3:]
    if kind == "fifo":
        os.mkfifo(path, 0o666)
        os.chmod(path, 0o666)
    elif kind == "folder":
        os.mkdir(path)
    elif kind == "link":
        os.symlink("/etc/passwd", path)
    else:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        os.fchmod(fd, 0o666)
        if kind == "second link":
            os.link(path, path + ".2")
        else:
            os.close(fd)  # a lease needs the only descriptor; who opens the file waits for its end
            fd = os.open(path, os.O_RDONLY)
            signal.signal(signal.SIGIO, signal.SIG_IGN)
            fcntl.fcntl(fd, 1024, fcntl.F_RDLCK)  # F_SETLEASE
    print("ready", flush=True)
    time.sleep(600)
    """
    second_user.start_until_ready(source, lease_file(queue, leases), kind)

    job = queue.add("--gpus", "2", "true")
    queue.until(lambda: "no lease" in queue.ok("why", str(job)), "the reason is told")

    told = queue.ok("why", str(job))
    assert lease_file(queue, leases) in told
    other = queue.add("true")  # the other GPU is of use still
    queue.ok("kill", str(job))
    queue.ok("wait", str(other))
    assert not queue.ok("gpus").count("\x1b")


def test_a_daemon_starts_among_hostile_lease_files(
    queue: QuickQueue, leases: Path, second_user: SecondUser
) -> None:
    second_user.run("os.mkfifo(sys.argv[3], 0o666)", lease_file(queue, leases))
    hold(second_user, queue, leases, HOSTILE["deep"], gpus=(1,))

    queue.ok("daemon", "restart")

    job = queue.add("--gpus", "2", "true")
    queue.until(lambda: "no lease" in queue.ok("why", str(job)), "the reason is told")
