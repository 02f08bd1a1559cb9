"""Session of Ray on the head: nodes ask for it, and start Ray again when it is another one."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.daemon_fixture import free_port
from patience import until
from stoker.cluster import ray_supervisor as module
from stoker.cluster import settings
from stoker.cluster.admission import AdmissionServer
from stoker.cluster.head_session import ask_session
from stoker.cluster.ray_supervisor import RaySupervisor
from stoker.cluster.settings import ClusterSettings, join_port

HOST = "127.0.0.1"
TOKEN = "5" * 64
FAKE_RAY = "import time; print('Ray runtime started', flush=True); time.sleep(600)"


class Head:
    """The head's side of the question."""

    def __init__(self, home: Path) -> None:
        self.port = int(free_port())
        self.session = "one"
        settings.save_token(str(home), TOKEN)
        self._server = AdmissionServer(
            str(home), HOST, join_port(self.port), print, lambda: self.session
        )
        self._server.start()
        until(lambda: self.ask(TOKEN) is not None, "the head answers")

    def ask(self, token: str) -> str | None:
        return ask_session(HOST, join_port(self.port), token)

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    head = Head(tmp_path / "head")
    yield head
    head.close()


def test_a_member_learns_the_session_of_the_head(head: Head) -> None:
    assert head.ask(TOKEN) == "one"
    head.session = ""
    assert head.ask(TOKEN) == ""


def test_an_answer_without_the_token_of_the_cluster_is_none(head: Head) -> None:
    assert head.ask("6" * 64) is None


@pytest.mark.parametrize(
    "answer", [b"", b"\n", b"[]\n", b"{}\n", b'{"session": "x", "proof": "00"}\n', b"x" * 9000]
)
def test_a_wrong_answer_is_none(answer: bytes) -> None:
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            connection, _peer = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert ask_session(HOST, server.getsockname()[1], TOKEN) is None
        thread.join()


def test_nothing_that_listens_is_none() -> None:
    assert ask_session(HOST, int(free_port()), TOKEN) is None


@pytest.fixture
def node(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], int]]:
    """Run the Ray supervisor of a node over a program that acts as Ray; return its present pid."""
    home = str(tmp_path / "node")
    settings.save_token(home, TOKEN)
    settings.save_settings(
        home, ClusterSettings(role="node", address=HOST, port=head.port, own_address="127.0.0.2")
    )
    monkeypatch.setattr(module, "ray_words", lambda *_: [sys.executable, "-c", FAKE_RAY])
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    monkeypatch.setattr(module, "_LOOK_MS", 10)
    supervisor = RaySupervisor(home, None)
    thread = threading.Thread(target=supervisor.run)
    thread.start()

    def pid() -> int:
        def up() -> int | None:
            state = supervisor._state
            return state.ray_pid if state.state == "up" else None

        return until(up, "Ray is up") or 0

    yield pid
    supervisor.ask_to_stop()
    thread.join()


def test_ray_is_started_again_when_the_head_has_another_session(
    head: Head, node: Callable[[], int]
) -> None:
    first = node()
    head.session = "two"
    until(lambda: node() != first, "it was started again")


def test_ray_waits_for_the_head_while_that_has_no_session(
    head: Head, node: Callable[[], int], tmp_path: Path
) -> None:
    first = node()
    head.session = ""
    state = tmp_path / "node" / "cluster" / "ray_supervisor.json"
    until(lambda: b"waiting" in state.read_bytes(), "it waits")
    head.session = "two"
    assert node() != first


def test_ray_is_left_alone_while_the_head_gives_no_answer(
    head: Head, node: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = node()
    asked: list[str] = []

    def fail(*_arguments: object) -> None:
        asked.append("")

    monkeypatch.setattr(module, "ask_session", fail)
    until(lambda: len(asked) > 3, "it has asked")
    assert node() == first
