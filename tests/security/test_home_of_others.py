"""A second user plants files in a home, or serves its socket: nothing of that is trusted."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from security.quick_queue import QuickQueue
from security.second_user import SecondUser

VERBS = [("add", "true"), ("status",), ("daemon", "start"), ("run",)]
PLANT = """
with open(os.path.join(sys.argv[3], sys.argv[4]), "w") as file:
    file.write("planted")
"""


@pytest.fixture
def open_queue(shared_folder: Path, quick_queue: QuickQueue) -> QuickQueue:
    """Return a queue without a daemon, whose home lies where the second user can reach it."""
    home = shared_folder / "home"
    home.mkdir(0o700)
    quick_queue.env["STOKER_HOME"] = str(home)
    quick_queue.home = quick_queue.stoker.home = home
    return quick_queue


def refused(queue: QuickQueue, *verb: str) -> str:
    """Run a verb, which must refuse the home in one line and leave it alone; that line."""
    before = sorted(os.listdir(queue.home))
    ended = queue(*verb, stdin="true\n" if verb == ("run",) else "")
    assert ended.code != 0
    assert ended.err.count("\n") == 1, ended.err
    assert ended.out == ""
    assert sorted(os.listdir(queue.home)) == before
    return ended.err


@pytest.mark.parametrize(
    ("mode", "verb"),
    [*((0o777, verb) for verb in VERBS), *((mode, VERBS[0]) for mode in (0o1777, 0o775, 0o720))],
    ids=str,
)
def test_a_home_that_others_can_write_is_refused(
    open_queue: QuickQueue, mode: int, verb: tuple[str, ...]
) -> None:
    open_queue.home.chmod(mode)

    assert f"chmod 700 {open_queue.home}" in refused(open_queue, *verb)


def test_a_file_of_another_user_in_a_home_is_refused(
    open_queue: QuickQueue, second_user: SecondUser
) -> None:
    queue = open_queue
    for name in ("stoker.db", "token", "start.lock", "anything"):
        queue.home.chmod(0o777)
        second_user.run(PLANT, str(queue.home), name)
        queue.home.chmod(0o700)

        told = refused(queue, "add", "true")

        assert f"{queue.home}/{name} belongs to {second_user.name}" in told
        assert "chown -R" in told
        os.unlink(queue.home / name)
    queue.ok("add", "true")


def test_a_planted_database_runs_no_hook(
    open_queue: QuickQueue, shared_folder: Path, second_user: SecondUser
) -> None:
    queue = open_queue
    queue.start()
    queue.ok("config", "on-finish", f"touch {queue.work}/planted")
    queue.ok("daemon", "stop")
    queue.home.chmod(0o777)
    source = """
    home = sys.argv[3]
    os.rename(home + "/stoker.db", home + "/old.db")
    with open(sys.argv[4], "rb") as mine, open(home + "/stoker.db", "wb") as planted:
        planted.write(mine.read())
    """
    planted = shared_folder / "planted.db"
    planted.write_bytes((queue.home / "stoker.db").read_bytes())
    second_user.run(source, str(queue.home), str(planted))

    told = refused(queue, "add", "true")

    assert f"chmod 700 {queue.home}" in told
    assert not (queue.work / "planted").exists()


def test_a_file_that_others_can_write_in_a_home_that_others_can_enter_is_refused(
    open_queue: QuickQueue,
) -> None:
    queue = open_queue
    queue.home.chmod(0o755)
    (queue.home / "stoker.db").touch()
    (queue.home / "stoker.db").chmod(0o666)

    assert f"chmod -R go-w {queue.home}" in refused(queue, "add", "true")


def test_a_home_in_a_folder_where_everybody_can_exchange_it_is_refused(
    open_queue: QuickQueue, shared_folder: Path
) -> None:
    shared_folder.chmod(0o777)

    assert f"chmod +t {shared_folder}" in refused(open_queue, "add", "true")


@pytest.mark.parametrize("verb", [("status",), ("add", "true")], ids=" ".join)
def test_a_socket_that_another_user_serves_is_not_spoken_to(
    open_queue: QuickQueue, second_user: SecondUser, verb: tuple[str, ...]
) -> None:
    queue = open_queue
    queue.home.chmod(0o777)
    source = """
    server = socket.socket(socket.AF_UNIX)
    server.bind(sys.argv[3] + "/stoker.sock")
    os.chmod(sys.argv[3] + "/stoker.sock", 0o666)
    server.listen()
    print("ready", flush=True)
    client, _ = server.accept()
    print(client.recv(100), flush=True)
    """
    server = second_user.start_until_ready(source, str(queue.home))
    shutil.chown(queue.home / "stoker.sock", os.getuid())  # as if the check of owners were passed
    queue.home.chmod(0o700)

    ended = queue(*verb)

    assert ended.code != 0
    assert f"is served by {second_user.name}" in ended.err
    out, err = server.communicate()
    assert (out, err) == ("b''\n", "")
    os.unlink(queue.home / "stoker.sock")


def test_everything_in_a_home_is_private_whatever_the_umask(quick_queue: QuickQueue) -> None:
    queue = quick_queue
    home = queue.work / "new" / "home"
    queue.env["STOKER_HOME"] = str(home)
    queue.home = queue.stoker.home = home
    old = os.umask(0)
    try:
        queue.start()
        queue.ok("add", "echo hello; touch made")
        queue.ok("add", "--snapshot", "true")
        queue.ok("wait", "1", "2")
        queue.ok("run", "--gpus", "2", stdin="true\n")
    finally:
        os.umask(old)

    others = stat.S_IRWXG | stat.S_IRWXO
    open_to_others = [
        path
        for path in [home.parent, home, *home.iterdir()]
        if not path.is_symlink() and path.stat().st_mode & others
    ]
    assert open_to_others == []
    assert (queue.work / "made").stat().st_mode & 0o777 == 0o666  # a job has its user's umask
