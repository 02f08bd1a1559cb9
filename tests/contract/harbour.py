"""A Ray on this machine's loopback, and streams to the shepherds of agents there.

Run as a program it is Ray's driver: whoever connects names a queue, and from then on speaks with the
shepherd of that queue's agent, as the bridge lets a daemon. Each queue has an agent of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from stoker.cluster import settings
from stoker.cluster.command import ray_environment, ray_words
from stoker.cluster.ray_folder import prepare_ray_folder, remove_ray_folder
from stoker.executors.node import Introduction, Joined, News
from stoker.executors.shepherd import sockets

_LIMIT = 64 << 20
_LEASE_S = 30.0
_PATIENCE_S = 20.0
NODE = "far"
_FORGET = "-"


class Harbour:
    """Both processes; they end with `close`, each by its own pid."""

    def __init__(self, folder: Path) -> None:
        self._home = home = str(folder / "home")
        self._path = str(folder / "harbour.sock")
        port = _free_port()
        here = "127.0.0.1"
        made = settings.Settings(role="head", address=here, port=port, own_address=here)
        settings.save_token(home, settings.make_token())
        settings.save_settings(home, made)
        words = ray_words(settings.load_node(home), made, prepare_ray_folder(home))
        env = {**ray_environment(home, os.environ), "STOKER_LEASE_DIR": str(folder / "leases")}
        self.leases = env["STOKER_LEASE_DIR"]
        self._log = open(folder / "log", "wb")  # noqa: SIM115 - until it is closed
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start(words, env, b"Ray runtime started")
        driver = [sys.executable, __file__, self._path, made.target, str(folder / "voyages")]
        self._start(driver, env, b"ready")

    def stream(self, queue: str) -> socket.socket:
        """A stream to the shepherd of a queue's agent."""
        stream = sockets.connect(self._path)
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


class Berth(NamedTuple):
    """What there is for a queue."""

    post: Any
    agent: Any
    minder: asyncio.Future[None]


class Pier:
    """The program: an agent and a post for each queue."""

    def __init__(self, address: str, notes: str) -> None:
        self._address = address
        self._notes = notes
        self._berths: dict[str, asyncio.Future[Berth]] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Let somebody speak with a queue's shepherd."""
        queue = (await reader.readline()).decode().strip()
        if queue.startswith(_FORGET):
            await self._close(queue.removeprefix(_FORGET))
        else:
            if queue not in self._berths:
                self._berths[queue] = asyncio.ensure_future(self._open(queue))
            with contextlib.suppress(OSError):
                await (await self._berths[queue]).post.carry(reader, writer)
        writer.close()

    async def _close(self, queue: str) -> None:
        import ray

        berth = await self._berths.pop(queue)
        berth.minder.cancel()
        berth.post.close()
        ray.kill(berth.agent)

    async def _open(self, queue: str) -> Berth:
        from stoker.bridge.post import Post
        from stoker.bridge.roll import _Calls

        joined = asyncio.Event()

        def tell(news: News) -> None:
            if isinstance(news, Joined):
                joined.set()

        post = Post(queue, NODE, tell, _LEASE_S, os.path.join(self._notes, queue))
        agent = await asyncio.to_thread(self._appoint, queue)
        facts = msgspec.json.decode(await agent.introduce.remote(), type=Introduction)
        minder = asyncio.ensure_future(post.mind(_Calls(agent), facts))
        await joined.wait()
        return Berth(post, agent, minder)

    def _appoint(self, queue: str) -> Any:
        import ray

        from stoker.bridge.roll import Roll

        (node,) = [node for node in ray.nodes() if node["Alive"]]
        return Roll(queue, self._address, Any, Any)._appoint(node)  # type: ignore[arg-type]


async def _work(path: str, address: str, notes: str) -> None:
    import ray

    ray.init(address=address, namespace="stoker", log_to_driver=False)
    pier = Pier(address, notes)
    server = await asyncio.start_unix_server(pier.serve, sock=sockets.listen(path), limit=_LIMIT)
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_work(*sys.argv[1:]))
