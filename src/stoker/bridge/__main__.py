"""The head's only process with Ray in it: finds nodes, keeps an agent on each, and passes on what is said.

It outlives the daemon: while jobs run on nodes, somebody has to renew their leases. It is started by the
daemon, one for each home, and listens at a socket of that home.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable

import msgspec

from stoker import pid_lock
from stoker.bridge.agent_client import AgentLostError
from stoker.bridge.lease_record import LeaseRecord
from stoker.bridge.node_session import NodeSession
from stoker.bridge.ray_membership import RayMembership
from stoker.cluster.ray_supervisor_control import ensure_ray_supervisor
from stoker.errors import StokerError
from stoker.executors.node_reports import (
    Forget,
    Known,
    News,
    Order,
    Sighted,
    Stop,
    Stream,
    Told,
    Watch,
)
from stoker.interpreter import module_command
from stoker.supervisor import unix_sockets

READY_FD = 3
_orders = msgspec.json.Decoder(Order)
_LIMIT = 64 << 20
_LEASES_S = 1.0
_PAUSE_S = 0.5
_LONELY_S = 60.0
_WITHOUT_RAY_S = 5.0
_MOST_UNREAD = 1 << 20  # how much a daemon may be behind that is still told how GPUs are


class Bridge:
    """Serves one daemon at a time, and goes on without."""

    def __init__(self, home: str, queue: str, address: str) -> None:
        self.posts: dict[str, NodeSession] = {}
        self.stopped = asyncio.Event()
        self._home = home
        self._client: asyncio.StreamWriter | None = None
        self._leases = LeaseRecord(os.path.join(home, "cluster", "leases"))
        self._lease_s = self._leases.lease_s or 30.0  # until a daemon tells
        self._grant(self._lease_s)
        self._transfers = os.path.join(home, "cluster", "transfers")
        self._wanted = False
        self._membership = RayMembership(queue, address, self._session_for, self.tell)

    async def run(self) -> None:
        """Work until told to stop; raises AgentLostError once Ray has ended here."""
        leases = asyncio.ensure_future(self._check_leases())
        membership = asyncio.ensure_future(self._membership.run())
        stopped = asyncio.ensure_future(self.stopped.wait())
        await asyncio.wait((membership, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        leases.cancel()
        for post in self.posts.values():
            post.close()
        error = membership.exception() if membership.done() else None
        membership.cancel()
        if isinstance(error, AgentLostError):
            raise error
        if error is not None:
            self.tell(Told(f"the cluster cannot be reached: {_brief(error)}"))
            if self._client is not None:
                with contextlib.suppress(OSError):
                    await self._client.drain()

    async def _check_leases(self) -> None:
        """Look whether any has run out; also of nodes that were never seen, and also without Ray.

        The Ray supervisor may have been killed too. With neither Ray nor a daemon for long there is
        nothing to do: the cluster has been left.
        """
        began_at = needed_at = time.monotonic()
        while True:
            for post in [*self.posts.values()]:
                post.check_lease()
            if self._client is not None or self._membership.has_joined:
                needed_at = time.monotonic()
            elif time.monotonic() > needed_at + _LONELY_S:
                self.stopped.set()
            if not self._membership.has_joined and time.monotonic() > began_at + _WITHOUT_RAY_S:
                with contextlib.suppress(StokerError):
                    ensure_ray_supervisor(self._home)
            await asyncio.sleep(_LEASES_S)

    def _session_for(self, node: str, name: str) -> NodeSession:
        """What is known of a node, from now on at least."""
        post = self.posts.get(node)
        if post is None:
            post = self.posts[node] = NodeSession(
                node,
                name,
                self.tell,
                self._lease_s,
                os.path.join(self._transfers, node),
                self._leases.over_at(),
            )
            post.wanted = self._wanted
        return post

    def tell(self, news: News) -> None:
        """Let the daemon know, if there is one; a new one is told how things stand.

        One that takes nothing in, as with a full disk, is spared what will be told again.
        """
        client = self._client
        if client is None or client.is_closing():
            return
        if isinstance(news, Sighted) and client.transport.get_write_buffer_size() > _MOST_UNREAD:
            return
        client.write(msgspec.json.encode(news) + b"\n")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry out the orders of a connection, or make it a stream to a node."""
        try:
            async for line in reader:
                order = _orders.decode(line)
                if isinstance(order, Stream):
                    post = self.posts.get(order.node)
                    if post is None:
                        await asyncio.sleep(_PAUSE_S)  # it is on its way, or the daemon's mistake
                    else:
                        await post.carry(reader, writer)
                    return
                self._carry_out(order, writer)
        except (OSError, msgspec.DecodeError, ValueError) as error:
            self.tell(Told(f"the bridge to the cluster met an error: {error}"))
        finally:
            if self._client is writer:
                self._client = None
                self._want(wanted=False)
            writer.close()

    def _carry_out(
        self, order: Known | Watch | Forget | Stop, writer: asyncio.StreamWriter
    ) -> None:
        match order:
            case Known():
                self._client = writer
                self._grant(order.lease_s)
                for node, name in order.nodes:
                    self._session_for(node, name)
                for post in self.posts.values():
                    post.lease_s = self._lease_s
                    post.retell()
            case Watch():
                self._want(wanted=order.wanted)
            case Forget():
                if order.node in self.posts:
                    self.posts.pop(order.node).close()
                self._membership.forget(order.node)
            case Stop():
                self.stopped.set()

    def _grant(self, lease_s: float) -> None:
        try:
            self._leases.grant(lease_s)
        except OSError as error:
            self.tell(
                Told(
                    f"leases stay at {self._lease_s:g} s, because {lease_s:g} s cannot be put on record"
                    f" ({error.strerror}): stoker daemon restart tries again"
                )
            )
        else:
            self._lease_s = lease_s

    def _want(self, *, wanted: bool) -> None:
        self._wanted = wanted
        for post in self.posts.values():
            post.wanted = wanted


def _brief(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "ray":
        return "there is no Ray: pip install 'stoker[ray]'"
    return str(error).strip().partition("\n")[0] or repr(error)


async def _work(home: str, queue: str, address: str, say: Callable[[str], None]) -> None:
    bridge = Bridge(home, queue, address)
    listener = unix_sockets.listen(os.path.join(home, "cluster", "bridge.sock"))
    server = await asyncio.start_unix_server(bridge.serve, sock=listener, limit=_LIMIT)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, bridge.stopped.set)
    say("ready")
    async with server:
        try:
            await bridge.run()
        except AgentLostError:
            _start_over()


def _start_over() -> None:
    """Be another process: nothing else can be done with a driver whose Ray is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, READY_FD)  # whoever started us has been told
    words = module_command("stoker.bridge", *sys.argv[1:])
    os.execv(words[0], words)  # noqa: S606 - there is no shell to want


def main() -> None:
    """The arguments are the home, the queue's identity, Ray's address, and a pause before all else."""
    home, queue, address, pause_s = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.set_inheritable(READY_FD, False)
    time.sleep(float(pause_s))
    if pid_lock.take(os.path.join(home, "cluster", "bridge.lock")) is None:
        _say("busy")
        return
    asyncio.run(_work(home, queue, address, _say))


def _say(word: str) -> None:
    with contextlib.suppress(OSError):
        os.write(READY_FD, word.encode())
    os.close(READY_FD)


if __name__ == "__main__":
    main()
