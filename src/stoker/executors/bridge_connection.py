"""The daemon's side of the bridge to other machines: started if there is none, and followed."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Mapping

import msgspec

from stoker.executors.node_reports import Known, News, Order, Stop, Stream
from stoker.interpreter import module_command
from stoker.open_files import with_original_limit
from stoker.supervisor import process_tree, unix_sockets

_READY_FD = 3
_LONGEST_PAUSE_S = 10.0
_PATIENCE_S = 5  # who takes nothing in for so long is as good as gone
_news = msgspec.json.Decoder(News)


class BridgeConnection:
    """Hears news of nodes; whenever the bridge is gone, another one is started.

    A bridge takes seconds to start and may be gone at any moment: nothing here waits for it.
    """

    def __init__(
        self, home: str, queue: str, address: str, lease_s: float, env: Mapping[str, str]
    ) -> None:
        self._home = home
        self._path = os.path.join(home, "cluster", "bridge.sock")
        self._words = [home, queue, address]
        self._lease_s = lease_s
        self._env = env
        self.nodes: dict[str, str] = {}
        self._socket: socket.socket | None = None
        self._ready = -1
        self._buffer = b""
        self._deaths = 0
        self._children: set[int] = set()
        self._poll = select.epoll()
        os.makedirs(os.path.join(home, "cluster"), mode=0o700, exist_ok=True)

    def fileno(self) -> int:
        """Return a descriptor that is readable when `observe` has something to tell or to do."""
        return self._poll.fileno()

    def observe(self) -> list[News] | None:
        """News since the last call; None if the bridge is gone, or has just been found."""
        if self._socket is None:
            if self._ready < 0:
                self._find()
            else:
                self._hear_of_start()
            return None
        try:
            data = self._socket.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._hang_up()
            self._find()
            return None
        self._deaths = 0
        whole, _, self._buffer = (self._buffer + data).rpartition(b"\n")
        return _news.decode_lines(whole)

    def open_stream(self, node: str) -> socket.socket | None:
        """A stream to the supervisor of a node; None if the bridge is gone."""
        try:
            stream = unix_sockets.connect(self._path)
            unix_sockets.set_send_timeout(stream, _PATIENCE_S)
            stream.sendall(msgspec.json.encode(Stream(node)) + b"\n")
        except OSError:
            return None
        return stream

    def tell(self, order: Order) -> None:
        """Give the bridge an order; one that is gone is told anew when it is back."""
        if self._socket is not None:
            try:
                self._socket.sendall(msgspec.json.encode(order) + b"\n")
            except OSError:
                return  # `observe` will see

    def close(self) -> None:
        """Let go; the bridge goes on."""
        self._hang_up()
        if self._ready >= 0:
            os.close(self._ready)
            self._ready = -1
        self._poll.close()
        self._reap()

    def _find(self) -> None:
        """Connect, or have a bridge started and be told when it is ready."""
        self._reap()
        try:
            self._socket = unix_sockets.connect(self._path)
        except OSError:
            self._start()
            return
        unix_sockets.set_send_timeout(self._socket, _PATIENCE_S)
        self._poll.register(self._socket, select.EPOLLIN)
        self.tell(Known(tuple(self.nodes.items()), self._lease_s))

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._poll.unregister(self._socket)
            self._socket.close()
            self._socket = None
            self._buffer = b""

    def _start(self) -> None:
        pause_s = 0.0 if not self._deaths else min(_LONGEST_PAUSE_S, 0.5 * 2**self._deaths)
        self._deaths += 1
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

    def _hear_of_start(self) -> None:
        """It is ready, or has died, unless there is nothing to hear yet."""
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
        self._find()

    def _reap(self) -> None:
        process_tree.reap_ended(self._children)


def dismiss(home: str) -> None:
    """Let the bridge of a home go, if there is one."""
    try:
        with unix_sockets.connect(os.path.join(home, "cluster", "bridge.sock")) as connection:
            connection.sendall(msgspec.json.encode(Stop()) + b"\n")
    except OSError:
        return  # there is none
