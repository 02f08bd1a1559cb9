"""Ray on this machine's loopback, and streams to the supervisors of agents there.

Run as a program it is Ray's driver: a client sends the name of a queue, and is then connected with the
supervisor of that queue's agent, as a daemon is by the bridge. Each queue has its own agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, NamedTuple

from stoker.bridge.agent import Agent
from stoker.bridge.agent_client import AgentClient
from stoker.bridge.agent_messages import Introduce
from stoker.bridge.checkpoint_proxy import HeadFiles
from stoker.bridge.node_session import NodeSession
from stoker.cluster import ray_api, settings
from stoker.cluster.ray_api import RayActor
from stoker.cluster.ray_command import ray_environment, ray_words
from stoker.cluster.ray_folder import prepare_ray_folder, remove_ray_folder
from stoker.executors.node_reports import Joined, NodeReport
from stoker.supervisor import unix_sockets

_LIMIT = 64 << 20
_LEASE_S = 30.0
_PATIENCE_S = 20.0
NODE = "far"
_FORGET = "-"


class RayFixture:
    """Both processes; they end with `close`, each by its own pid."""

    def __init__(self, folder: Path) -> None:
        self._home = home = str(folder / "home")
        self._path = str(folder / "ray_fixture.sock")
        port = _free_port()
        here = "127.0.0.1"
        made = settings.ClusterSettings(role="head", address=here, port=port, own_address=here)
        settings.save_token(home, settings.make_token())
        settings.save_settings(home, made)
        words = ray_words(settings.load_node(home), made, prepare_ray_folder(home))
        env = {**ray_environment(home, os.environ), "STOKER_LEASE_DIR": str(folder / "leases")}
        self.leases = env["STOKER_LEASE_DIR"]
        self._log = open(folder / "log", "wb")  # noqa: SIM115 - until it is closed
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start(words, env, b"Ray runtime started")
        driver = [sys.executable, __file__, self._path, made.target, str(folder / "transfers")]
        self._start(driver, env, b"ready")

    def stream(self, queue: str) -> socket.socket:
        """A stream to the supervisor of a queue's agent."""
        stream = unix_sockets.connect(self._path)
        stream.sendall(f"{queue}\n".encode())
        return stream

    def forget(self, queue: str) -> None:
        """End a queue's agent."""
        with self.stream(f"{_FORGET}{queue}") as stream:
            stream.recv(1)  # until it is done

    def close(self) -> None:
        """End both, the driver first."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self._log.close()
        remove_ray_folder(self._home)

    def _start(self, words: list[str], env: dict[str, str], ready: bytes) -> None:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log, env=env
        )
        self._processes.append(process)
        assert process.stdout is not None
        _read_until(process.stdout, ready)


def _read_until(file: IO[bytes], ready: bytes) -> None:
    for line in file:
        if ready in line:
            return
    raise RuntimeError(f"it ended before it said {ready!r}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class QueueAgent(NamedTuple):
    """The agent of a queue and the session with it."""

    session: NodeSession
    actor: RayActor
    heartbeats: asyncio.Future[None]


class Driver:
    """The program: an agent and a session for each queue."""

    def __init__(self, transfers: str) -> None:
        self._transfers = transfers
        self._agents: dict[str, asyncio.Future[QueueAgent]] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client with the supervisor of a queue's agent."""
        queue = (await reader.readline()).decode().strip()
        if queue.startswith(_FORGET):
            await self._close(queue.removeprefix(_FORGET))
        else:
            if queue not in self._agents:
                self._agents[queue] = asyncio.ensure_future(self._open(queue))
            with contextlib.suppress(OSError):
                await (await self._agents[queue]).session.carry(reader, writer)
        writer.close()

    async def _close(self, queue: str) -> None:
        agent = await self._agents.pop(queue)
        agent.heartbeats.cancel()
        agent.session.close()
        agent.actor.kill()

    async def _open(self, queue: str) -> QueueAgent:
        joined = asyncio.Event()

        def tell(news: NodeReport) -> None:
            if isinstance(news, Joined):
                joined.set()

        files = HeadFiles(
            transfers=os.path.join(self._transfers, queue),
            checkpoints=os.path.join(self._transfers, f"{queue}-checkpoints"),
            limit_bytes=1 << 20,
        )
        session = NodeSession(queue, NODE, tell, _LEASE_S, files)
        (node,) = await asyncio.to_thread(ray_api.list_live_nodes)
        actor = await asyncio.to_thread(ray_api.get_actor, Agent, queue, node)
        client = AgentClient(actor.call)
        introduction = await client.call(Introduce(), _PATIENCE_S)
        heartbeats = asyncio.ensure_future(session.mind(client, introduction))
        await joined.wait()
        return QueueAgent(session, actor, heartbeats)


async def _work(path: str, address: str, transfers: str) -> None:
    ray_api.connect_driver(address)
    driver = Driver(transfers)
    server = await asyncio.start_unix_server(
        driver.serve, sock=unix_sockets.listen(path), limit=_LIMIT
    )
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_work(*sys.argv[1:]))
