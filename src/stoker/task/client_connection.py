"""The engine's connection to its client: sends without blocking, and notices that the client is gone."""

from __future__ import annotations

import select
import socket

import msgspec

from stoker.task import messages

_orders = msgspec.msgpack.Decoder(messages.Order)


class ClientGoneError(Exception):
    """The client's process is gone, or has closed the connection."""


class ClientConnection:
    """A socket to the client. Messages wait in a buffer until the client reads them."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._unpacker = messages.Unpacker()
        self._outbox = bytearray()
        self.fileno = sock.fileno
        sock.setblocking(False)

    def receive(self) -> list[messages.Order]:
        """Return the messages that have arrived; ClientGoneError at the end of the stream."""
        try:
            data = self._socket.recv(1 << 20)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ClientGoneError from error
        if not data:
            raise ClientGoneError
        return [_orders.decode(body) for body in self._unpacker.feed(data)]

    def wait(self) -> messages.Order:
        """Wait for the first message."""
        while not (orders := self.receive()):
            select.select([self], [], [])
        return orders[0]

    def wait_for_end(self) -> None:
        """Wait until the client closes the connection, which raises ClientGoneError."""
        while True:
            self.wait()

    def send(self, event: messages.Event) -> None:
        """Append a message to the buffer, which `flush` sends."""
        self._outbox += messages.pack(event)

    def flush(self) -> bool:
        """Send as much as the socket takes now; whether that was everything."""
        while self._outbox:
            try:
                sent = self._socket.send(self._outbox)
            except BlockingIOError:
                return False
            except OSError as error:
                raise ClientGoneError from error
            del self._outbox[:sent]
        return True

    def flush_all(self) -> None:
        """Send everything, however long the client takes to read it."""
        self._socket.setblocking(True)
        self.flush()
        self._socket.setblocking(False)
