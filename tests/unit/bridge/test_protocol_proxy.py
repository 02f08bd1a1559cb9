"""What a node makes of what a head says, on its way to the supervisor."""

from __future__ import annotations

import asyncio
import base64
import socket
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stoker.bridge import protocol_proxy as module
from stoker.bridge.log_forwarder import LogForwarders, Piece
from stoker.bridge.protocol_proxy import ProtocolProxy
from stoker.executors.node_orders import NODE_ORDERS, ForgetLogs, NodeOrder, RunInCopy, SendScript
from stoker.supervisor import reports
from stoker.supervisor.framing import SUPERVISOR_ORDERS
from stoker.supervisor.journal import Ending
from stoker.supervisor.messages import Acknowledge, DefineContext, RevokeAttempt, StartAttempt


def ended(key: str) -> str:
    return reports.ended(key, Ending(0, 1, 2, 3))


class Node:
    """A protocol proxy between a test and the test, which is both head and supervisor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.supervisor, connection = socket.socketpair()
        self.supervisor.settimeout(20)
        self.trails = LogForwarders(str(folder / "logs"))
        self.proxy = ProtocolProxy(connection, str(folder), "far", self.trails)

    async def say(self, *orders: NodeOrder) -> None:
        """What the head says."""
        await self.proxy.write(NODE_ORDERS.encode(orders))

    async def tell(self, report: str) -> bytes:
        """What the supervisor tells; what the head hears then."""
        self.supervisor.sendall(f"{report}\n".encode())
        reply = await self.proxy.read(20)
        assert reply is not None
        return reply.reports

    async def send_script(self, key: str) -> None:
        """Have the script of an attempt that is to start."""
        text = base64.b64encode(b"true").decode()
        await self.say(SendScript(f"/there/{key.partition('.')[0]}", text))

    async def start(self, key: str) -> None:
        """Have an attempt that runs, and has written to its log."""
        await self.send_script(key)
        env = {"STOKER_CHECKPOINTS": "there"}
        context = DefineContext(0, env, str(self.folder), "/bin/sh")
        log = str(self.folder / "there" / key)
        argv = ["sh", f"/there/{key.partition('.')[0]}"]
        await self.say(context, StartAttempt(key, 0, 0, argv, log, log_offset=3))
        (self.folder / "logs" / f"{key}.log").write_text("text")

    def left(self) -> set[str]:
        """What there is for attempts and jobs."""
        patterns = ("logs/*", "checkpoints/*/*", "scripts/*")
        return {path.name for pattern in patterns for path in self.folder.glob(pattern)}

    def close(self) -> None:
        self.proxy.close()
        self.supervisor.close()


def play(folder: Path, story: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    async def begin() -> None:
        node = Node(folder)
        try:
            await story(node)
        finally:
            node.close()

    asyncio.run(begin())


def test_a_log_is_told_before_the_end_of_its_job(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        await node.start("7.1")
        node.supervisor.sendall(f"{ended('7.1')}\n".encode())
        reply = await node.proxy.read(20)
        assert reply is not None
        assert reply.pieces == [Piece(str(tmp_path / "there" / "7.1"), 3, b"text")]
        assert reply.reports == f"{ended('7.1')}\n".encode()

    play(tmp_path, story)


def test_logs_of_attempts_that_were_given_up_are_told_no_more(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        await node.start("7.1")
        await node.say(ForgetLogs())
        node.supervisor.sendall(f"{reports.lost('7.1', 'its lease', True)}\n".encode())
        reply = await node.proxy.read(20)
        assert reply is not None
        assert reply.pieces == []
        assert list((tmp_path / "logs").iterdir()) == []
        assert b'["logs"]' not in node.supervisor.recv(1 << 16)

    play(tmp_path, story)


@pytest.mark.parametrize("word", ["ended", "revoked"])
def test_nothing_stays_of_an_attempt_that_is_over(tmp_path: Path, word: str) -> None:
    async def story(node: Node) -> None:
        await node.start("7.1")
        assert node.left() == {"7.1.trail", "7.1.log", "7"}
        await node.tell(ended("7.1") if word == "ended" else reports.revoked("7.1"))
        if word == "ended":
            assert node.left() == {"7.1.trail", "7.1.log", "7"}  # it may be told again
            await node.say(Acknowledge(["7.1"]))
        assert node.left() == set()
        assert node.proxy.place_of == {}

    play(tmp_path, story)


def test_what_the_next_attempt_needs_stays(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        await node.start("7.1")
        await node.tell(ended("7.1"))
        await node.start("7.2")
        await node.say(Acknowledge(["7.1"]))
        assert node.left() == {"7.2.trail", "7.2.log", "7"}
        (tmp_path / "checkpoints" / "0" / "7" / "epoch-1").touch()
        await node.tell(ended("7.2"))
        await node.say(Acknowledge(["7.2"]))
        assert node.left() == {"7"}
        assert (tmp_path / "checkpoints" / "0" / "7" / "epoch-1").exists()

    play(tmp_path, story)


def test_a_script_stays_for_a_start_that_waits_for_its_tree(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        await node.start("7.1")
        await node.tell(ended("7.1"))
        await node.send_script("7.2")
        await node.say(Acknowledge(["7.1"]))
        assert node.left() == {"7"}

    play(tmp_path, story)


def test_a_file_system_that_hangs_holds_up_starts_and_what_follows_them_but_no_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()

    def find_missing(_folder: str, _program: str) -> None:
        hangs.wait()

    monkeypatch.setattr(module, "_find_missing", find_missing)

    async def story(node: Node) -> None:
        context = DefineContext(0, {}, str(tmp_path), "/bin/sh")
        attempt = StartAttempt("7.1", 0, 0, ["true"], None)
        start = asyncio.ensure_future(node.say(context, attempt))
        revoke = asyncio.ensure_future(node.say(RevokeAttempt("7.1")))
        assert await node.tell(ended("6.1")) == f"{ended('6.1')}\n".encode()
        hangs.set()
        await asyncio.gather(start, revoke)
        said = node.supervisor.recv(1 << 16).splitlines(keepends=True)
        assert said == [
            SUPERVISOR_ORDERS.encode((context, attempt)),
            SUPERVISOR_ORDERS.encode((RevokeAttempt("7.1"),)),
        ]

    try:
        play(tmp_path, story)
    finally:
        hangs.set()


def test_an_attempt_that_came_with_its_tree_runs_in_the_copy(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        start = StartAttempt("7.1", 0, 5, ["true"], None)
        copy = RunInCopy("7.1", str(tmp_path), "/run")
        await node.say(DefineContext(0, {"A": "b"}, "/nowhere", "/bin/sh"), copy, start)
        (line,) = node.supervisor.recv(1 << 16).splitlines()
        _, private, started = SUPERVISOR_ORDERS.decode(line)
        env = {"A": "b", "PWD": str(tmp_path), "STOKER_RUN_DIR": "/run"}
        assert private == DefineContext(-1, env, str(tmp_path), "/bin/sh")
        assert started == start._replace(context=-1)

    play(tmp_path, story)


def test_the_text_of_a_start_may_hold_the_word_of_any_order(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        start = StartAttempt("7.1", 0, 0, ["true", '"transfer"', '["ended","7.1"]'], None)
        await node.say(DefineContext(0, {}, str(tmp_path), "/bin/sh"), start)
        (line,) = node.supervisor.recv(1 << 16).splitlines()
        assert SUPERVISOR_ORDERS.decode(line)[1] == start

    play(tmp_path, story)
