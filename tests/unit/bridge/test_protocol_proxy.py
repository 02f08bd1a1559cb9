"""Protocol proxy: translation of orders, forwarding of logs, files of attempts."""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stoker.bridge import protocol_proxy as module
from stoker.bridge.agent_messages import StreamOutput
from stoker.bridge.checkpoint_watch import CheckpointWatch
from stoker.bridge.log_forwarder import LogForwarders, LogList, LogPiece
from stoker.bridge.protocol_proxy import Found, ProtocolProxy
from stoker.executors.connection import REPLIES
from stoker.executors.contract import Refused
from stoker.executors.node_orders import NODE_ORDERS, KeepAttempts, NodeOrder, RunInCopy, SendScript
from stoker.staging.blobs import Blobs
from stoker.staging.node_checkpoints import NodeCheckpoints
from stoker.supervisor import reports
from stoker.supervisor.framing import SUPERVISOR_ORDERS
from stoker.supervisor.journal import Ending
from stoker.supervisor.messages import Acknowledge, DefineContext, RevokeAttempt, StartAttempt


def ended(key: str) -> str:
    return reports.ended(key, Ending(0, 1, 2, 3))


OWN = {"PATH": os.environ["PATH"], "HOME": "/home/of/the/node"}


class Node:
    """A protocol proxy; the test plays both the head and the supervisor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.supervisor, connection = socket.socketpair()
        self.supervisor.settimeout(20)
        self.logs = LogForwarders(str(folder / "logs"))
        self.checkpoints = NodeCheckpoints(str(folder / "checkpoints"), Blobs(str(folder), 1 << 20))
        self.proxy = ProtocolProxy(connection, str(folder), "far", self.logs, self.checkpoints, OWN)

    async def order(self, *orders: NodeOrder) -> None:
        """Send orders of the head."""
        await self.proxy.write([NODE_ORDERS.encode(orders)])

    async def report(self, report: str) -> StreamOutput:
        """Send a report of the supervisor; return what the head reads then."""
        self.supervisor.sendall(f"{report}\n".encode())
        output = await self.proxy.read(20)
        assert output is not None
        return output

    async def send_script(self, key: str) -> None:
        """Send the script of an attempt."""
        text = base64.b64encode(b"true").decode()
        await self.order(SendScript(f"/there/{key.partition('.')[0]}", text))

    async def start(self, key: str) -> None:
        """Start an attempt and write its log."""
        await self.send_script(key)
        env = {"STOKER_CHECKPOINTS": "there"}
        context = DefineContext(0, env, str(self.folder), "/bin/sh")
        log = str(self.folder / "there" / key)
        argv = ["sh", f"/there/{key.partition('.')[0]}"]
        await self.order(context, StartAttempt(key, 0, 0, argv, log, log_offset=3))
        (self.folder / "logs" / f"{key}.log").write_text("text")

    def left(self) -> set[str]:
        """Names of all files of attempts and jobs."""
        patterns = ("logs/*.log", "checkpoints/*/*", "scripts/*")
        return {path.name for pattern in patterns for path in self.folder.glob(pattern)}

    def close(self) -> None:
        self.proxy.close()
        self.supervisor.close()


def run(folder: Path, scenario: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    async def begin() -> None:
        node = Node(folder)
        try:
            await scenario(node)
        finally:
            node.close()

    asyncio.run(begin())


def test_a_log_is_forwarded_before_the_end_of_its_job(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        await node.start("7.1")
        output = await node.report(ended("7.1"))
        assert output.pieces == [LogPiece(str(tmp_path / "there" / "7.1"), 3, b"text")]
        assert output.reports == [ended("7.1").encode()]

    run(tmp_path, scenario)


def test_the_head_has_an_empty_log_from_the_start_of_a_job(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        await node.start("7.1")
        (tmp_path / "logs" / "7.1.log").unlink()
        there = str(tmp_path / "there" / "7.1")
        output = await node.report(reports.started("7.1", 1, 0, 0.0))
        assert output.pieces == [LogPiece(there, 3, b"")]
        (tmp_path / "logs" / "7.1.log").write_text("text")
        again = await node.proxy.read(10.0)
        assert again is not None
        assert again.pieces == [LogPiece(there, 3, b"text")]

    run(tmp_path, scenario)


def test_logs_of_abandoned_attempts_are_not_forwarded(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        await node.start("7.1")
        await node.start("8.1")
        await node.order(KeepAttempts(["8.1"]))
        output = await node.report(reports.lost("7.1", "its lease", True))
        assert output.pieces == []
        assert {name for name in node.left() if name.endswith(".log")} == {"8.1.log"}
        assert LogList(str(tmp_path / "logs")).read().keys() == {"8.1"}
        assert b'"keep"' not in node.supervisor.recv(1 << 16)

    run(tmp_path, scenario)


@pytest.mark.parametrize("word", ["ended", "revoked"])
def test_files_of_an_ended_attempt_are_deleted(tmp_path: Path, word: str) -> None:
    async def scenario(node: Node) -> None:
        await node.start("7.1")
        assert node.left() == {"7.1.log", "7"}
        await node.report(ended("7.1") if word == "ended" else reports.revoked("7.1"))
        if word == "ended":
            assert node.left() == {"7.1.log", "7"}  # it may be told again
            await node.order(Acknowledge(["7.1"]))
        assert node.left() == set()
        assert node.proxy.slot_of == {}

    run(tmp_path, scenario)


def test_an_end_is_unconfirmed_until_the_head_acknowledges_it(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        await node.start("7.1")
        await node.report(ended("7.1"))
        assert node.proxy.unconfirmed == {"7.1"}
        await node.order(Acknowledge(["7.1"]))
        assert node.proxy.unconfirmed == set()

    run(tmp_path, scenario)


def test_files_that_the_next_attempt_needs_are_kept(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        await node.start("7.1")
        await node.report(ended("7.1"))
        await node.start("7.2")
        await node.order(Acknowledge(["7.1"]))
        assert node.left() == {"7.2.log", "7"}
        (tmp_path / "checkpoints" / "0" / "7" / "epoch-1").touch()
        output = await node.report(ended("7.2"))
        written = reports.checkpoints("7.2", is_over=True)
        assert output.reports == [written.encode(), ended("7.2").encode()]
        await node.order(Acknowledge(["7.2"]))
        assert node.left() == {"7"}
        assert (tmp_path / "checkpoints" / "0" / "7" / "epoch-1").exists()

    run(tmp_path, scenario)


def test_a_script_is_kept_for_a_start_that_waits_for_its_tree(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        await node.start("7.1")
        await node.report(ended("7.1"))
        await node.send_script("7.2")
        await node.order(Acknowledge(["7.1"]))
        assert node.left() == {"7"}

    run(tmp_path, scenario)


def test_a_hung_file_system_delays_starts_and_later_orders_but_no_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()

    def look_up(_folder: str, program: str, _path: str) -> Found:
        hangs.wait()
        return Found(program, None)

    monkeypatch.setattr(module, "_look_up", look_up)

    async def scenario(node: Node) -> None:
        context = DefineContext(0, {}, str(tmp_path), "/bin/sh")
        attempt = StartAttempt("7.1", 0, 0, ["true"], None)
        start = asyncio.ensure_future(node.order(context, attempt))
        revoke = asyncio.ensure_future(node.order(RevokeAttempt("7.1")))
        assert (await node.report(ended("6.1"))).reports == [ended("6.1").encode()]
        hangs.set()
        await asyncio.gather(start, revoke)
        sent = node.supervisor.recv(1 << 16).splitlines(keepends=True)
        assert sent == [
            SUPERVISOR_ORDERS.encode((context._replace(env=OWN), attempt)),
            SUPERVISOR_ORDERS.encode((RevokeAttempt("7.1"),)),
        ]

    try:
        run(tmp_path, scenario)
    finally:
        hangs.set()


def test_an_attempt_with_a_tree_runs_in_its_copy(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        start = StartAttempt("7.1", 0, 5, ["/bin/sh"], None)
        copy = RunInCopy("7.1", str(tmp_path), "/run")
        submitted = {"A": "b", "STOKER_WANDB_GROUPS": "opt"}
        await node.order(DefineContext(0, submitted, "/nowhere", "/bin/sh"), copy, start)
        (line,) = node.supervisor.recv(1 << 16).splitlines()
        _, private, started = SUPERVISOR_ORDERS.decode(line)
        run = {
            "STOKER_RUN_DIR": "/run",
            "WANDB_DIR": "/run",
            "MLFLOW_TRACKING_URI": "sqlite:////run/mlflow.db",
            "WANDB_SWEEP_PARAM_PATH": "/run/wandb_params.yaml",
        }
        env = {**submitted, **OWN, "PWD": str(tmp_path), **run}
        assert private == DefineContext(-1, env, str(tmp_path), "/bin/sh")
        assert started == start._replace(context=-1)

    run(tmp_path, scenario)


def test_a_command_may_contain_the_text_of_any_order(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        start = StartAttempt("7.1", 0, 0, ["/bin/sh", '"transfer"', '["ended","7.1"]'], None)
        await node.order(DefineContext(0, {}, str(tmp_path), "/bin/sh"), start)
        (line,) = node.supervisor.recv(1 << 16).splitlines()
        assert SUPERVISOR_ORDERS.decode(line)[1] == start

    run(tmp_path, scenario)


@pytest.mark.parametrize("blocked", ["checkpoints", "logs", "scripts"])
def test_a_start_whose_files_cannot_be_written_is_refused_and_the_stream_goes_on(
    tmp_path: Path, blocked: str
) -> None:
    async def scenario(node: Node) -> None:
        folder = tmp_path / blocked
        if folder.exists():
            folder.rmdir()
        folder.write_text("a file where the folder should be")
        await node.send_script("7.1")
        argv = ["sh", "/there/7"]
        context = DefineContext(0, {}, str(tmp_path), "/bin/sh")
        await node.order(context, StartAttempt("7.1", 0, 0, argv, str(tmp_path / "log")))
        output = await node.proxy.read(20)
        assert output is not None
        (report,) = map(REPLIES.decode, output.reports)
        assert isinstance(report, Refused)
        assert report.key == "7.1"
        assert report.errno in (errno.ENOTDIR, errno.EEXIST)
        assert str(folder) in report.reason
        assert (await node.report(ended("6.1"))).reports == [ended("6.1").encode()]

    run(tmp_path, scenario)


def test_checkpoints_of_a_running_attempt_are_reported_once_they_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_PERIOD_S", 0.01)

    async def scenario(node: Node) -> None:
        await node.start("7.1")
        await node.report(reports.started("7.1", 5, 6, 7.0))
        folder = tmp_path / "checkpoints" / "0" / "7"
        for text in ("one", "other"):
            (folder / "epoch").write_text(text)
            output = await node.proxy.read(20)
            while output is not None and not output.reports:
                output = await node.proxy.read(20)
            assert output is not None
            assert output.reports == [reports.checkpoints("7.1", is_over=False).encode()]
        (folder / "epoch").unlink()
        assert (await node.report(ended("7.1"))).reports == [ended("7.1").encode()]

    run(tmp_path, scenario)


def test_checkpoints_that_change_are_not_reported(tmp_path: Path) -> None:
    checkpoints = NodeCheckpoints(str(tmp_path / "checkpoints"), Blobs(str(tmp_path), 1 << 20))
    watch = CheckpointWatch(checkpoints)
    folder = Path(checkpoints.path(7))
    assert not watch.has_written(7)
    folder.mkdir(parents=True)
    for size in range(1, 4):
        (folder / "epoch").write_text("x" * size)
        assert not watch.has_written(7)
    assert [watch.has_written(7) for _ in range(2)] == [True, False]
    watch.forget(7)
    assert [watch.has_written(7) for _ in range(2)] == [False, True]


async def refusal_of(node: Node, *argv: str, env: dict[str, str]) -> str:
    """Start a command that the node refuses, and return the reason."""
    context = DefineContext(0, env, str(node.folder), "/bin/sh")
    await node.order(context, StartAttempt("7.1", 0, 0, [*argv], None))
    output = await node.proxy.read(20)
    assert output is not None
    (report,) = map(REPLIES.decode, output.reports)
    assert isinstance(report, Refused)
    assert report.errno == errno.ENOENT
    return report.reason


def test_a_program_without_a_path_is_looked_up_on_the_node(tmp_path: Path) -> None:
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "train").write_text("#!/bin/sh\n")
    (venv / "train").chmod(0o755)

    async def scenario(node: Node) -> None:
        env = {"PATH": f"{venv}:/only/on/the/head", "HOME": "/home/of/the/head"}
        assert await refusal_of(node, "train", env=env) == "far has no program train in its PATH"
        active = {**env, "VIRTUAL_ENV": str(tmp_path / "venv")}
        context = DefineContext(1, active, str(tmp_path), "/bin/sh")
        await node.order(context, StartAttempt("8.1", 1, 0, ["train", "--lr"], None))
        *_, defined, started = [
            order
            for line in node.supervisor.recv(1 << 16).splitlines()
            for order in SUPERVISOR_ORDERS.decode(line)
        ]
        assert isinstance(defined, DefineContext)
        assert defined.env["HOME"] == OWN["HOME"]
        assert defined.env["PATH"] == f"{venv}:{OWN['PATH']}"
        assert isinstance(started, StartAttempt)
        assert started.argv == [str(venv / "train"), "--lr"]

    run(tmp_path, scenario)


def test_a_program_that_only_the_head_has_is_refused(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        reason = await refusal_of(node, "/only/on/the/head/python", "x.py", env={})
        assert reason == "far has no /only/on/the/head/python"

    run(tmp_path, scenario)


def test_a_job_whose_folder_the_node_lacks_is_refused_with_the_remedy(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        node.folder = tmp_path / "only on the head"
        reason = await refusal_of(node, "true", env={})
        assert reason == (
            f"far has no folder {tmp_path}/only on the head: stoker add --sync ships the working tree to it"
        )

    run(tmp_path, scenario)
