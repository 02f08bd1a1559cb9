"""Process of the head that connects the daemon with the nodes through Ray: finds nodes and keeps sessions.

It outlives the daemon, because the leases of running jobs must be renewed. The daemon starts one bridge for
each home and connects to its socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time

import msgspec

from stoker import __version__, pid_lock
from stoker.bridge.agent_client import AgentLostError
from stoker.bridge.atomic_files import write_whole
from stoker.bridge.checkpoint_proxy import HeadFiles
from stoker.bridge.lease_record import LeaseRecord
from stoker.bridge.node_session import NodeSession
from stoker.bridge.ray_membership import RayMembership
from stoker.cluster.ray_supervisor_control import ensure_ray_supervisor
from stoker.cluster.ssh.tunnel import ensure_tunnels
from stoker.errors import StokerError
from stoker.executors.bridge_connection import bridge_lock_path, bridge_version_path
from stoker.executors.bridge_orders import (
    BRIDGE_ORDERS,
    BridgeOrder,
    ConnectNode,
    ForgetNode,
    KnownNodes,
    StopBridge,
    WatchGpus,
)
from stoker.executors.node_reports import GpusSampled, NodeReport, Notice
from stoker.interpreter import module_command
from stoker.staging.node_cache import DEFAULT_LIMIT_BYTES
from stoker.supervisor import unix_sockets

READY_FD = 3
_LINE_LIMIT_BYTES = 64 << 20
_TUNNELS_S = 3.0
_LEASE_CHECK_S = 1.0
_PAUSE_S = 0.5
_UNUSED_S = 60.0
_WITHOUT_RAY_S = 5.0
_MAX_UNREAD_BYTES = 1 << 20  # a daemon that is further behind gets no reports of GPUs


class Bridge:
    """Serves one daemon at a time, and goes on without one."""

    def __init__(self, home: str, queue: str, address: str) -> None:
        self.sessions: dict[str, NodeSession] = {}
        self.stopped = asyncio.Event()
        self._home = home
        self._client: asyncio.StreamWriter | None = None
        self._leases = LeaseRecord(os.path.join(home, "cluster", "leases"))
        self._lease_s = self._leases.lease_s or 30.0  # until a daemon sends it
        self._grant(self._lease_s)
        self._limit_bytes = DEFAULT_LIMIT_BYTES  # until a daemon sends it
        self._watch_gpus = False
        self._membership = RayMembership(queue, address, self._session_for, self.report)

    async def run(self) -> None:
        """Work until told to stop; raise AgentLostError once Ray has ended on this machine."""
        leases = asyncio.ensure_future(self._check_leases())
        membership = asyncio.ensure_future(self._membership.run())
        stopped = asyncio.ensure_future(self.stopped.wait())
        await asyncio.wait((membership, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        leases.cancel()
        for session in self.sessions.values():
            session.close()
        error = membership.exception() if membership.done() else None
        membership.cancel()
        if isinstance(error, AgentLostError):
            raise error
        if error is not None:
            self.report(Notice(f"the cluster cannot be reached: {_brief(error)}"))
            if self._client is not None:
                with contextlib.suppress(OSError):
                    await self._client.drain()

    async def _check_leases(self) -> None:
        """Report expired leases, also of nodes that were never seen, and also without Ray.

        Start the Ray supervisor if it was killed. End this process if it has had neither Ray nor a daemon
        for long: then this machine has left the cluster.
        """
        began_at = needed_at = tunnels_at = time.monotonic()
        while True:
            for session in [*self.sessions.values()]:
                session.check_lease()
            if time.monotonic() > tunnels_at:
                tunnels_at = time.monotonic() + _TUNNELS_S
                with contextlib.suppress(StokerError):
                    ensure_tunnels(self._home)
            if self._client is not None or self._membership.has_joined:
                needed_at = time.monotonic()
            elif time.monotonic() > needed_at + _UNUSED_S:
                self.stopped.set()
            if not self._membership.has_joined and time.monotonic() > began_at + _WITHOUT_RAY_S:
                with contextlib.suppress(StokerError):
                    ensure_ray_supervisor(self._home)
            await asyncio.sleep(_LEASE_CHECK_S)

    def _session_for(self, node: str, name: str) -> NodeSession:
        """Return the session with a node, which is created on the first call."""
        session = self.sessions.get(node)
        if session is None:
            session = self.sessions[node] = NodeSession(
                node,
                name,
                self.report,
                self._lease_s,
                self._files_of(node),
                self._leases.over_at(),
            )
            session.watch_gpus = self._watch_gpus
        return session

    def _files_of(self, node: str) -> HeadFiles:
        return HeadFiles(
            transfers=os.path.join(self._home, "cluster", "transfers", node),
            checkpoints=os.path.join(self._home, "checkpoints"),
            limit_bytes=self._limit_bytes,
        )

    def report(self, report: NodeReport) -> None:
        """Send a report to the daemon, if there is one; a new daemon gets the state of all nodes.

        A daemon that reads slowly, as with a full disk, gets no reports of GPUs: they are repeated anyway.
        """
        client = self._client
        if client is None or client.is_closing():
            return
        unread_bytes = client.transport.get_write_buffer_size()
        if isinstance(report, GpusSampled) and unread_bytes > _MAX_UNREAD_BYTES:
            return
        client.write(msgspec.json.encode(report) + b"\n")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry out the orders of a connection, or turn it into a stream to a node."""
        try:
            async for line in reader:
                order = BRIDGE_ORDERS.decode(line)
                if isinstance(order, ConnectNode):
                    session = self.sessions.get(order.node)
                    if session is None:
                        await asyncio.sleep(_PAUSE_S)  # limits how often the daemon tries
                    else:
                        await session.carry(reader, writer)
                    return
                self._carry_out(order, writer)
        except (OSError, msgspec.DecodeError, ValueError) as error:
            self.report(Notice(f"the bridge to the cluster met an error: {error}"))
        finally:
            if self._client is writer:
                self._client = None
                self._set_watch(wanted=False)
            writer.close()

    def _carry_out(self, order: BridgeOrder, writer: asyncio.StreamWriter) -> None:
        match order:
            case KnownNodes():
                self._client = writer
                self._grant(order.lease_s)
                self._limit_bytes = min(order.sync_limit_bytes, DEFAULT_LIMIT_BYTES)
                for node, name in order.nodes:
                    self._session_for(node, name)
                for session in self.sessions.values():
                    session.lease_s = self._lease_s
                    session.files = self._files_of(session.node)
                    session.report_state()
            case WatchGpus():
                self._set_watch(wanted=order.wanted)
            case ForgetNode():
                if order.node in self.sessions:
                    self.sessions.pop(order.node).close()
                self._membership.forget(order.node)
            case StopBridge():
                self.stopped.set()

    def _grant(self, lease_s: float) -> None:
        try:
            self._leases.grant(lease_s)
        except OSError as error:
            self.report(
                Notice(
                    f"leases stay at {self._lease_s:g}s, because {lease_s:g}s cannot be put on record"
                    f" ({error.strerror}): stoker daemon restart tries again"
                )
            )
        else:
            self._lease_s = lease_s

    def _set_watch(self, *, wanted: bool) -> None:
        self._watch_gpus = wanted
        for session in self.sessions.values():
            session.watch_gpus = wanted


def _brief(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "ray":
        return "Ray is not installed: pip install 'stoker[ray]'"
    return str(error).strip().partition("\n")[0] or repr(error)


async def _work(home: str, queue: str, address: str) -> None:
    bridge = Bridge(home, queue, address)
    listener = unix_sockets.listen(os.path.join(home, "cluster", "bridge.sock"))
    server = await asyncio.start_unix_server(bridge.serve, sock=listener, limit=_LINE_LIMIT_BYTES)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, bridge.stopped.set)
    _answer("ready")
    async with server:
        try:
            await bridge.run()
        except AgentLostError:
            _restart()


def _restart() -> None:
    """Replace this process by a new bridge: a driver cannot reconnect when its Ray has ended."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), READY_FD)  # the daemon has its answer already
    words = module_command("stoker.bridge", *sys.argv[1:])
    os.execv(words[0], words)  # noqa: S606 - no shell is needed


def main() -> None:
    """Run the bridge. Arguments: home, id of the queue, Ray's address, seconds to wait first."""
    home, queue, address, pause_s = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.set_inheritable(READY_FD, False)
    time.sleep(float(pause_s))
    if pid_lock.take(bridge_lock_path(home)) is None:
        _answer("busy")
        return
    with contextlib.suppress(
        OSError
    ):  # on a full disk, the next daemon ends this bridge needlessly
        write_whole(bridge_version_path(home), __version__.encode())
    asyncio.run(_work(home, queue, address))


def _answer(text: str) -> None:
    """Answer the daemon that started this process."""
    with contextlib.suppress(OSError):
        os.write(READY_FD, text.encode())
    os.close(READY_FD)


if __name__ == "__main__":
    main()
