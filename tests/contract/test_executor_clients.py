"""Who may speak with a daemon's supervisor, and in which words."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.executor_harness import FOREVER, Harness, alive, kept_executor, name_of, put_away
from patience import PATIENCE_S
from stoker import __version__
from stoker.errors import StokerError
from stoker.executors.contract import ExecutorLostError, Launch, Synced
from stoker.executors.daemon_executor import DaemonExecutor
from stoker.supervisor import process_tree, unix_sockets
from stoker.supervisor.messages import PROTOCOL


class Caller:
    """Speaks with a supervisor word by word."""

    def __init__(self, path: Path) -> None:
        self.socket = unix_sockets.connect(str(path))
        self._lines = self.socket.makefile("rb")

    def send(self, *messages: list[object]) -> None:
        self.socket.sendall(json.dumps(messages).encode() + b"\n")

    def hear(self) -> list[Any]:
        """The next report; nothing at the end."""
        self.socket.settimeout(10)
        line = self._lines.readline()
        heard = json.loads(line) if line else []
        assert isinstance(heard, list)
        return heard

    def hears_nothing(self) -> bool:
        self.socket.setblocking(False)
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True

    def close(self) -> None:
        self._lines.close()
        self.socket.close()


@pytest.fixture
def call(kept: Harness, path: Path) -> Iterator[Callable[[], Caller]]:
    """Return a maker of callers to a supervisor that has something to do."""
    kept.sh("1.1", FOREVER)
    kept.started("1.1")
    kept.executor.close()
    callers: list[Caller] = []

    def make() -> Caller:
        callers.append(Caller(path))
        return callers[-1]

    yield make
    for caller in callers:
        caller.close()
    kept.executor = kept_executor(kept.work)


def test_a_supervisor_introduces_itself(call: Callable[[], Caller], surroundings: Path) -> None:
    word, spoken, pid, name, version = call().hear()

    assert (word, spoken) == ("hello", PROTOCOL)
    assert (name, version) == (name_of(surroundings), __version__)
    assert alive([pid])


def test_a_second_client_waits_until_the_first_is_gone(
    call: Callable[[], Caller],
) -> None:
    first = call()
    first.hear()
    first.send(["sync"])
    assert first.hear()[0] == "started"
    assert first.hear()[0] == "synced"
    second = call()
    first.send(["context", 0, {}, "/", "/bin/sh"], ["place", 0, {}, []])
    first.send(*(["hold", 0] for _ in range(50)))
    for _ in range(50):
        assert first.hear() == ["held", 0]
    assert second.hears_nothing()
    for number in range(2, 40):
        first.send(
            ["place", number, {}, []], ["start", f"{number}.1", 0, number, ["/bin/true"], None]
        )
    first.close()

    assert second.hear()[0] == "hello"
    second.send(["sync"])
    keys = []
    while (heard := second.hear())[0] != "synced":
        if heard[0] == "started":
            keys.append(heard[1])
    assert keys == [f"{number}.1" for number in range(1, 40)]


def test_nothing_is_reported_before_a_client_is_synced(
    kept: Harness, call: Callable[[], Caller]
) -> None:
    caller = call()
    pid = caller.hear()[2]
    (job,) = [process.pid for process in process_tree.processes().values() if process.parent == pid]
    os.kill(job, signal.SIGKILL)
    kept.until_quietly(lambda: not os.path.exists(f"/proc/{job}"))
    caller.send(["sync"])

    assert [caller.hear()[0] for _ in range(3)] == ["started", "ended", "synced"]


@pytest.mark.parametrize(
    "nonsense",
    [b"no json\n", b'[["no such verb"]]\n', b'[["start", "2.1"]]\n', b"[1]\n", b'{"a": 1}\n'],
)
def test_invalid_orders_only_end_the_connection(
    call: Callable[[], Caller], nonsense: bytes, surroundings: Path
) -> None:
    caller = call()
    pid = caller.hear()[2]
    caller.socket.sendall(nonsense)
    assert caller.hear() == []
    again = call()

    assert again.hear()[2] == pid
    again.send(["sync"])
    assert again.hear()[:2] == ["started", "1.1"]
    assert "Traceback" in (surroundings.parent / "supervisor.log").read_text()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_a_client_of_another_user_is_rejected(surroundings: Path) -> None:
    script = (
        "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX);"
        "s.connect(sys.argv[1]); s.sendall(b'[[\"stop\", true]]\\n'); print(s.recv(100))"
    )
    with tempfile.TemporaryDirectory() as folder:  # one that others can reach
        os.chmod(folder, 0o755)
        paths: dict[str, Any] = {"socket": f"{folder}/s", "journal": f"{folder}/journal"}
        executor = DaemonExecutor(name=name_of(surroundings), **paths)
        os.chmod(f"{folder}/s", 0o666)
        executor.define_context(0, {}, "/", "/bin/sh")
        executor.launch([Launch("1.1", (), ["/bin/sleep", "600"])])
        executor.close()
        done = subprocess.run(
            [sys.executable, "-c", script, f"{folder}/s"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        executor = DaemonExecutor(name=name_of(surroundings), **paths)
        harness = Harness(executor, surroundings, lambda _key: lambda: None)
        assert harness.synced() == Synced(frozenset({"1.1"}), fresh=False)
        put_away(executor)

    assert "hello" not in done.stdout
    assert "Permission" not in done.stderr  # it could connect


def test_an_idle_supervisor_wakes_up_once_an_hour(call: Callable[[], Caller]) -> None:
    caller = call()
    pid = caller.hear()[2]
    caller.send(["sync"])
    while caller.hear()[0] != "synced":
        pass
    caller.send(["place", 0, {}, []], ["hold", 0])
    caller.hear()

    def wakes() -> int:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            return int(file.read().partition("voluntary_ctxt_switches:")[2].split()[0])

    before = wakes()
    other = subprocess.run(["sleep", "1.5"], check=True)  # the time that is looked at
    assert other.returncode == 0
    assert wakes() - before <= 2


class TestVersions:
    @pytest.fixture
    def stranger(self, path: Path) -> Iterator[socket.socket]:
        """A socket at which a test plays the supervisor."""
        with unix_sockets.listen(str(path)) as listener:
            yield listener

    @pytest.mark.parametrize("spoken", [PROTOCOL - 1, PROTOCOL + 1])
    def test_a_supervisor_of_another_protocol_version_is_left_alone(
        self, surroundings: Path, stranger: socket.socket, spoken: int
    ) -> None:
        said = json.dumps(["hello", spoken, os.getpid(), "x", "9.0", "more"]).encode() + b"\n"
        answer: list[bytes] = []

        def play() -> None:
            client, _ = stranger.accept()
            with client:
                client.sendall(said)
                answer.append(client.recv(100))

        thread = threading.Thread(target=play)
        thread.start()
        with pytest.raises(StokerError, match=r"Stoker 9\.0.*daemon stop --kill") as caught:
            kept_executor(surroundings)
        thread.join()
        assert not isinstance(caught.value, ExecutorLostError)
        assert answer == [b""]
