"""The file of the daemon's socket is removed while the daemon runs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from fault.home import is_alive, kill
from patience import until
from stoker.client.client import Client
from stoker.client.transport import NoDaemonError
from stoker.wire import NewJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fault.home import Home
    from fault.work import Work


@pytest.fixture
def socket(home: Home) -> Path:
    """Return the path of a running daemon's socket."""
    home.start("--gpus", "0")
    return home.folder / "stoker.sock"


@pytest.fixture
def pid(home: Home, socket: Path) -> int:
    """Return the daemon's pid."""
    assert socket.is_socket()
    pid = home.daemon()
    assert pid is not None
    return pid


@pytest.fixture
def lost(socket: Path, pid: int) -> Iterator[int]:
    """Return the pid of a daemon whose socket is gone, and whose path is blocked by a folder."""
    socket.unlink()
    while not socket.is_dir():  # the daemon may be quicker
        try:
            (socket / "in the way").mkdir(parents=True)
        except (FileExistsError, NotADirectoryError):
            socket.unlink()
    yield pid
    kill(pid)


def stoker(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a verb, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "stoker", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("how", ["removed", "renamed", "replaced"])
def test_the_daemon_makes_its_socket_again(
    home: Home, socket: Path, pid: int, work: Work, how: str
) -> None:
    with Client(home.path) as connected:
        connected.status()
        if how == "removed":
            socket.unlink()
        elif how == "renamed":
            socket.rename(socket.with_name("old"))
        else:
            other = socket.with_name("other")
            other.write_text("not a socket")
            other.rename(socket)
        until(socket.is_socket, "the socket is back")

        with home.client() as client:
            (added,) = client.add(work.submission([NewJob(command="exit 3")]))
            [*client.wait()]

        assert connected.show(added.first).exit_code == 3
    assert home.daemon() == pid
    assert socket.stat().st_mode & 0o777 == 0o600


def test_status_tells_of_a_daemon_that_cannot_be_reached(lost: int) -> None:
    ended = stoker("daemon", "status")

    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"pid {lost}" in ended.stderr
    assert "stoker daemon restart" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_add_tells_of_a_daemon_that_cannot_be_reached(lost: int, work: Work) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "stoker", "add", "true"],
        cwd=work.folder,
        capture_output=True,
        text=True,
        timeout=50,  # a minute was what it took
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"pid {lost}" in ended.stderr
    assert "stoker daemon restart" in ended.stderr
    assert is_alive(lost)


def test_stop_ends_a_daemon_that_cannot_be_reached(home: Home, lost: int) -> None:
    ended = stoker("daemon", "stop")

    assert ended.returncode == 0
    assert ended.stdout == "stopped\n"
    assert not is_alive(lost)
    assert home.daemon() is None


def test_restart_replaces_a_daemon_that_cannot_be_reached(
    home: Home, lost: int, socket: Path
) -> None:
    (socket / "in the way").rmdir()
    socket.rmdir()

    ended = stoker("daemon", "restart")

    assert ended.returncode == 0, ended.stderr
    assert "started" in ended.stdout
    assert not is_alive(lost)
    assert home.daemon() not in (None, lost)


def test_a_lock_file_that_nobody_holds_proves_no_daemon(home: Home) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        (home.folder / "daemon.lock").write_text(str(bystander.pid))

        assert stoker("daemon", "stop").stdout == "no daemon runs\n"
        with pytest.raises(NoDaemonError, match="no daemon runs"), Client(home.path) as client:
            client.status()

        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
