from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.gpus import lease
from stoker.gpus.lease_holder import UNSEEN
from stoker.gpus.turn_files import Notice, TurnBoard, read_users

NOW = 5000.0
TELL_AND_WAIT = """
import sys, time
from stoker.gpus.turn_files import Notice, TurnBoard
board = TurnBoard()
ends = {"reserves": (7000, 6000), "reserved": {"GPU-b": 7000}}
board.publish(Notice(60.0, 5000.0, 1, 2, frozenset({"GPU-a"}), **ends))
print(board.name, flush=True)
time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "leases"
    folder.mkdir(mode=0o1777)
    folder.chmod(0o1777)
    monkeypatch.setenv("STOKER_LEASE_DIR", str(folder))
    return folder


@pytest.fixture
def board(folder: Path) -> Iterator[TurnBoard]:
    board = TurnBoard()
    yield board
    board.close(keep=False)


@pytest.fixture
def other(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A Stoker of another process, and the name of its file."""
    words = [sys.executable, "-c", TELL_AND_WAIT]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.kill()


def test_what_a_living_stoker_tells_is_read(
    board: TurnBoard, other: tuple[subprocess.Popen[str], str]
) -> None:
    (found,) = board.read(NOW)
    assert found.name == other[1]
    assert found.is_alive
    assert found.uid == os.geteuid()
    assert found.notice == Notice(
        60.0, NOW, 1, 2, frozenset({"GPU-a"}), reserves=(7000, 6000), reserved={"GPU-b": 7000}
    )
    assert read_users(NOW)[os.geteuid()].reserved == {"GPU-b": 7000}
    assert found.notice.use_at(NOW + 10) == pytest.approx(70.0, abs=0.01)


def test_who_was_killed_waits_for_nothing_and_its_use_is_inherited(
    board: TurnBoard, other: tuple[subprocess.Popen[str], str], folder: Path
) -> None:
    other[0].kill()
    other[0].wait()
    (found,) = board.read(NOW)
    assert not found.is_alive
    assert found.notice == Notice(60.0, NOW, reserved={"GPU-b": 7000})
    assert board.inherit(NOW) == 60.0
    assert not (folder / other[1]).exists()
    assert board.inherit(NOW) == 0.0


def test_a_living_stoker_is_not_inherited(
    board: TurnBoard, other: tuple[subprocess.Popen[str], str], folder: Path
) -> None:
    assert board.inherit(NOW) == 0.0
    assert (folder / other[1]).exists()


def test_a_shorter_notice_leaves_nothing_of_a_longer_one(board: TurnBoard, folder: Path) -> None:
    board.publish(Notice(1e8, NOW, 4, 4, frozenset({"GPU-long-name"})))
    board.publish(Notice())
    assert json.loads((folder / board.name).read_text())["gpus"] == []


def test_a_file_that_was_removed_is_made_again(board: TurnBoard, folder: Path) -> None:
    board.publish(Notice(1.0, NOW))
    (folder / board.name).unlink()
    board.publish(Notice(2.0, NOW))
    assert json.loads((folder / board.name).read_text())["use_s"] == 2.0
    assert read_users(NOW)[os.geteuid()].use_s == 2.0


def test_nobody_else_can_write_the_file(board: TurnBoard, folder: Path) -> None:
    board.publish(Notice())
    assert (folder / board.name).stat().st_mode & 0o777 == 0o644


def test_a_release_wakes_a_stoker_that_watches(board: TurnBoard, folder: Path) -> None:
    held = lease.take("GPU-a", "another run")
    assert held is not None
    assert board.watch()
    assert not board.changes().leases
    held.release()
    assert select.select([board], [], [], 5.0)[0] == [board]
    assert board.changes().leases
    held = lease.take("GPU-a", "another run")
    assert held is not None
    board.changes()
    assert lease.take("GPU-a", "this run") is None
    assert not board.changes().leases  # else those who wait would wake each other for ever
    held.release()


BAD = {
    "binary": b"\xff\x00" * 100,
    "huge": b"[" * 100_000,
    "deep": b"[" * 8000,
    "list": b"[1, 2]",
    "nothing": b"",
    "words": b'{"use_s": "much", "wants": [], "gpus": {"a": 1}, "holds": true, "is_limited": 1}',
    "infinite": b'{"use_s": 1e999, "wants": 1e999, "at_s": NaN, "gpus": [1, null], "needs": NaN}',
    "negative": b'{"use_s": -5, "wants": -1, "holds": -3, "at_s": -1, "needs": -2, "gathers": -1}',
    "reserving": b'{"reserves": "all", "reserved": ["GPU-a"]}',
    "reserving for ever": b'{"reserves": [1e999, "x", null, -5], "reserved": {"GPU-a": 1e12}}',
    "reserving with a long name": b'{"reserved": {"' + b"x" * 200 + b'": 5}}',
    "large": b'{"use_s": 1' + b"0" * 400 + b', "wants": 1' + b"0" * 4000 + b"}",
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_bad_content_wants_and_uses_nothing(board: TurnBoard, folder: Path, content: bytes) -> None:
    path = folder / f"turn-{os.geteuid()}-0123456789abcdef"
    path.write_bytes(content)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for found in board.read(NOW):
            assert (found.notice.use_s, found.notice.wants, found.notice.holds) == (0.0, 0, 0)
            assert (found.notice.needs, found.notice.gathers) == (1, 0)
            assert not found.notice.is_limited
            assert found.notice.use_at(NOW + 10.0) == 0.0
            assert not any(found.notice.reserves)
            assert not any(found.notice.reserved.values())
        for user in read_users(NOW).values():
            assert user.use_s == 0.0


def test_what_is_no_plain_file_does_not_count(board: TurnBoard, folder: Path) -> None:
    uid = os.geteuid()
    os.mkfifo(folder / f"turn-{uid}-000000000000000a")
    (folder / f"turn-{uid}-000000000000000b").mkdir()
    target = folder / "target"
    target.write_text('{"use_s": 5}')
    (folder / f"turn-{uid}-000000000000000c").symlink_to(target)
    os.link(target, folder / f"turn-{uid}-000000000000000d")
    (folder / "turn-x").write_text('{"use_s": 5}')
    assert board.read(NOW) == []
    assert read_users(NOW) == {}


def test_a_file_that_names_another_user_than_its_owner_does_not_count(
    board: TurnBoard, folder: Path
) -> None:
    path = folder / f"turn-{os.geteuid() + 1}-0123456789abcdef"
    path.write_text('{"use_s": 5}')
    assert board.read(NOW) == []
    path.rename(folder / f"turn-{os.geteuid()}-0123456789abcdef")
    assert len(board.read(NOW)) == 1


def test_of_one_user_some_files_are_read_and_the_living_ones_are_among_them(
    board: TurnBoard, folder: Path, other: tuple[subprocess.Popen[str], str]
) -> None:
    for number in range(50):
        (folder / f"turn-{os.geteuid()}-{number:016x}").write_text('{"use_s": 5}')
    found = board.read(NOW)
    assert len(found) == 17
    assert [each.name for each in found if each.is_alive] == [other[1]]


def test_a_stoker_is_found_among_thousands_of_files_of_another_user(
    board: TurnBoard, folder: Path, other: tuple[subprocess.Popen[str], str]
) -> None:
    for number in range(6000):
        (folder / f"turn-{os.geteuid() + 1}-{number:016x}").touch()
    readings = (board.read(NOW) for _ in range(6000))
    assert next(found for found in readings if found)[0].name == other[1]
    assert board.read(NOW)[0].name == other[1]


def test_a_changed_file_is_found_at_once_among_thousands(board: TurnBoard, folder: Path) -> None:
    for number in range(6000):
        (folder / f"turn-{os.geteuid() + 1}-{number:016x}").touch()
    assert board.watch()
    newcomer = TurnBoard()
    newcomer.publish(Notice(1.0, NOW, 0, 1, frozenset({"GPU-a"})))
    assert board.changes().turns
    assert [each.name for each in board.read(NOW)] == [newcomer.name]
    newcomer.close(keep=False)


KEEP_LOCK = """
import os, sys
from stoker.gpus.turn_files import Notice, TurnBoard
board = TurnBoard()
board.publish(Notice(60.0, 5000.0, 1, 2, frozenset({"GPU-a"})))
if os.fork():
    os._exit(0)
print(board.name, flush=True)
sys.stdin.read()
"""


def test_a_lock_that_only_another_process_keeps_is_no_life_sign(
    board: TurnBoard, folder: Path
) -> None:
    words = [sys.executable, "-c", KEEP_LOCK]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        path = folder / process.stdout.readline().strip()
        process.wait()
        os.utime(path, (time.time() - 60, time.time() - 60))
        (found,) = board.read(NOW)
        assert (found.is_alive, found.is_locked) == (False, True)
        assert found.notice == Notice(60.0, NOW)
        assert board.inherit(NOW) == 0.0
        assert process.stdin is not None


def test_where_processes_are_hidden_the_time_of_the_file_is_the_life_sign(
    board: TurnBoard,
    folder: Path,
    other: tuple[subprocess.Popen[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stoker.gpus.turn_files.locking_user", lambda *_file: UNSEEN)
    assert board.read(NOW)[0].is_alive
    os.utime(folder / other[1], (time.time() - 60, time.time() - 60))
    assert not board.read(NOW)[0].is_alive


def test_a_stoker_touches_its_file_now_and_then(board: TurnBoard, folder: Path) -> None:
    assert not board.keep_alive(NOW)
    board.publish(Notice())
    os.utime(folder / board.name, (5, 5))
    assert board.keep_alive(NOW)
    assert (folder / board.name).stat().st_mtime > 5
    (folder / board.name).unlink()
    assert not board.keep_alive(NOW)


def test_a_time_that_is_touched_wakes_no_other(board: TurnBoard, folder: Path) -> None:
    newcomer = TurnBoard()
    newcomer.publish(Notice())
    assert board.watch()
    assert newcomer.keep_alive(NOW)
    assert select.select([board], [], [], 5.0)[0] == [board]
    assert not board.changes().turns
    newcomer.close(keep=False)


def test_a_file_that_a_stoker_of_the_own_user_took_for_dead_is_made_again(
    board: TurnBoard, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heir, lock = TurnBoard(), fcntl.flock

    def inherit_first(fd: int, operation: int) -> None:
        monkeypatch.undo()
        monkeypatch.setenv("STOKER_LEASE_DIR", str(folder))
        heir.inherit(NOW)
        lock(fd, operation)

    monkeypatch.setattr("fcntl.flock", inherit_first)
    assert board.publish(Notice(3.0, NOW))
    assert read_users(NOW)[os.geteuid()].use_s == 3.0
    heir.close(keep=False)


def test_a_notice_that_cannot_be_written_is_reported(board: TurnBoard, folder: Path) -> None:
    folder.rmdir()
    assert not board.publish(Notice())
    folder.mkdir()
    folder.chmod(0o1777)
    assert board.publish(Notice())


def test_without_a_folder_nothing_happens(folder: Path) -> None:
    folder.rmdir()
    board = TurnBoard()
    board.publish(Notice())
    assert board.read(NOW) == []
    assert not board.watch()
    board.close(keep=True)
