"""The daemon's connection to the bridge, which is started if it does not run."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Mapping

import msgspec

from stoker import __version__, pid_lock
from stoker.executors.bridge_orders import BridgeOrder, ConnectNode, KnownNodes, StopBridge
from stoker.executors.node_reports import NODE_REPORTS, NodeReport
from stoker.interpreter import module_command
from stoker.open_files import with_original_limit
from stoker.supervisor import process_tree, unix_sockets

_READY_FD = 3
_LONGEST_PAUSE_S = 10.0
_END_PATIENCE_S = 10.0
_SEND_TIMEOUT_S = 5  # a bridge that reads nothing for so long counts as gone


class ClusterRules(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that count for all nodes from the start of a daemon."""

    lease_s: float
    sync_limit_bytes: int


class BridgeConnection:
    """Receives reports about nodes. When the bridge has ended, another one is started.

    A bridge takes seconds to start and may end at any moment: no method waits for it. `nodes` has the
    names of the nodes on record, by id.
    """

    def __init__(
        self, home: str, queue: str, address: str, rules: ClusterRules, env: Mapping[str, str]
    ) -> None:
        self._home = home
        self._path = _socket_path(home)
        self._words = [home, queue, address]
        self._rules = rules
        self._env = env
        self.nodes: dict[str, str] = {}
        self._socket: socket.socket | None = None
        self._ready = -1
        self._buffer = b""
        self._failures = 0
        self._children: set[int] = set()
        self._poll = select.epoll()
        os.makedirs(os.path.join(home, "cluster"), mode=0o700, exist_ok=True)

    def fileno(self) -> int:
        """Return a descriptor that is readable when `observe` should be called."""
        return self._poll.fileno()

    def observe(self) -> list[NodeReport] | None:
        """Return the reports since the last call; None if the bridge is gone or was just connected."""
        if self._socket is None:
            if self._ready < 0:
                self._connect()
            else:
                self._check_start()
            return None
        try:
            data = self._socket.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._disconnect()
            self._connect()
            return None
        self._failures = 0
        whole, _, self._buffer = (self._buffer + data).rpartition(b"\n")
        return NODE_REPORTS.decode_lines(whole)

    def open_stream(self, node: str) -> socket.socket | None:
        """Return a stream to the supervisor of a node; None if the bridge is gone."""
        try:
            stream = unix_sockets.connect(self._path)
            unix_sockets.set_send_timeout(stream, _SEND_TIMEOUT_S)
            stream.sendall(_encode(ConnectNode(node)))
        except OSError:
            return None
        return stream

    def send(self, order: BridgeOrder) -> None:
        """Send an order if the bridge is there; `observe` notices if it is not."""
        if self._socket is not None:
            try:
                self._socket.sendall(_encode(order))
            except OSError:
                return

    def close(self) -> None:
        """Close the connection; the bridge goes on."""
        self._disconnect()
        if self._ready >= 0:
            os.close(self._ready)
            self._ready = -1
        self._poll.close()
        process_tree.reap_ended(self._children)

    def _connect(self) -> None:
        """Connect, or start a bridge and wait for its message that it is ready."""
        process_tree.reap_ended(self._children)
        try:
            self._socket = unix_sockets.connect(self._path)
        except OSError:
            self._start()
            return
        unix_sockets.set_send_timeout(self._socket, _SEND_TIMEOUT_S)
        self._poll.register(self._socket, select.EPOLLIN)
        nodes = tuple(self.nodes.items())
        self.send(KnownNodes(nodes, self._rules.lease_s, self._rules.sync_limit_bytes))

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._poll.unregister(self._socket)
            self._socket.close()
            self._socket = None
            self._buffer = b""

    def _start(self) -> None:
        pause_s = 0.0 if not self._failures else min(_LONGEST_PAUSE_S, 0.5 * 2**self._failures)
        self._failures += 1
        argv = with_original_limit(module_command("stoker.bridge", *self._words, str(pause_s)))
        log = os.path.join(self._home, "cluster", "bridge.log")
        reader, writer = os.pipe()
        append = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        actions = [
            (os.POSIX_SPAWN_DUP2, writer, _READY_FD),
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        env = {**self._env, "STOKER_PART": "bridge"}
        pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True, setsigmask=[])
        os.close(writer)
        self._children.add(pid)
        self._ready = reader
        self._poll.register(reader, select.EPOLLIN)

    def _check_start(self) -> None:
        """Connect if the bridge is ready or has died; else return."""
        poll = select.poll()  # select() takes no descriptor above 1023
        poll.register(self._ready, select.POLLIN)
        if not poll.poll(0):
            return
        try:
            os.read(self._ready, 64)
        finally:
            self._poll.unregister(self._ready)
            os.close(self._ready)
            self._ready = -1
        self._connect()


def end_bridge_of_other_version(home: str) -> None:
    """End the bridge of a home if it has another version of Stoker. Jobs go on, and so do their leases.

    The next bridge has the version of this process, and takes over within seconds.
    """
    lock = bridge_lock_path(home)
    pid = pid_lock.holder_pid(lock)
    if pid and _bridge_version(home) != __version__:
        pid_lock.end_holder(lock, pid, _END_PATIENCE_S)


def _bridge_version(home: str) -> str | None:
    """Return the version of Stoker that the last bridge had; None if it recorded none."""
    try:
        with open(bridge_version_path(home), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def bridge_version_path(home: str) -> str:
    """Return the path of the file in which a bridge records its version of Stoker."""
    return os.path.join(home, "cluster", "bridge.version")


def bridge_lock_path(home: str) -> str:
    """Return the path of the file that the bridge of a home locks."""
    return os.path.join(home, "cluster", "bridge.lock")


def stop_bridge(home: str) -> None:
    """Stop the bridge of a home, if there is one."""
    try:
        with unix_sockets.connect(_socket_path(home)) as connection:
            connection.sendall(_encode(StopBridge()))
    except OSError:
        return  # there is none


def _socket_path(home: str) -> str:
    return os.path.join(home, "cluster", "bridge.sock")


def _encode(order: BridgeOrder) -> bytes:
    return msgspec.json.encode(order) + b"\n"
