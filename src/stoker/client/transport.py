"""HTTP over the daemon's socket, hand-written: `stoker add` needs an import that costs almost nothing."""

from __future__ import annotations

import os
import sys
from _socket import AF_UNIX, MSG_PEEK, SO_PEERCRED, SO_SNDTIMEO, SOCK_STREAM, SOL_SOCKET
from _socket import socket as Socket  # noqa: N812 - the class of `socket`, without its imports

from stoker.errors import ConflictError, NotFoundError, StokerError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SOCKET_NAME = "stoker.sock"
TIMEOUT_S = 60.0

_MAX_PATH_BYTES = 107
_PIECE_BYTES = 65536
_PLAIN = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"


class NoDaemonError(StokerError):
    """No daemon listens for this home; `died` if it was not stopped but ended by a fault."""

    def __init__(self, message: str, *, died: bool) -> None:
        super().__init__(message)
        self.died = died


class BrokenError(StokerError):
    """The connection broke before the answer was complete."""


class Answer:
    """A complete answer."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Connection:
    """One connection to a home's daemon, for one request after another.

    A request fails if the daemon is silent for `timeout_s`, by default a minute.
    """

    def __init__(self, home: str, timeout_s: float | None = None) -> None:
        self._home = home
        self._timeout_s = timeout_s or TIMEOUT_S
        self._socket = _connect(home, self._timeout_s)
        self._buffer = bytearray()

    def __enter__(self) -> Connection:  # noqa: PYI034 - typing has Self, and costs too much
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()

    def request(self, method: str, target: str, body: bytes | None = None) -> Answer:
        """Send a request and read its answer; a refusal raises its error."""
        self.ask(method, target, body)
        return self.answer()

    def ask(self, method: str, target: str, body: bytes | None = None) -> None:
        """Send a request; read its answer before the next request."""
        head = f"{method} {target} HTTP/1.1\r\nhost: stoker\r\n"
        if body is not None:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        try:
            self._socket.sendall(head.encode() + b"\r\n" + (body or b""))
        except TimeoutError:
            self.close()
            raise _silent(self._home, self._timeout_s) from None
        except OSError:
            # The daemon may have refused before it had read all: its answer is there.
            pass

    def answer(self) -> Answer:
        """Read the answer to the last request; a refusal raises its error."""
        status, headers = self._read_head()
        data = b"".join(self._read_body(headers))
        if headers.get("connection", "").lower() == "close":
            self.close()
        if status >= 400:
            raise make_error(status, data)
        return Answer(status, headers, data)

    def stream(self, target: str) -> tuple[dict[str, str], Iterator[bytes]]:
        """Request a stream: returns its headers, and its chunks as they arrive.

        A stream has no timeout. The connection cannot be used again.
        """
        self.ask("GET", target)
        status, headers = self._read_head()
        if status >= 400:
            raise make_error(status, b"".join(self._read_body(headers)))
        self._socket.settimeout(None)
        return headers, self._read_body(headers)

    def is_usable(self) -> bool:
        """Whether the daemon has sent nothing since the last answer, and has not closed the connection."""
        try:
            self._socket.settimeout(0)
            self._socket.recv(1, MSG_PEEK)
        except BlockingIOError:
            self._socket.settimeout(self._timeout_s)
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _read_head(self) -> tuple[int, dict[str, str]]:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            self._receive()
        lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        try:
            return int(lines[0].split(" ", 2)[1]), headers
        except (IndexError, ValueError):
            raise self._broken() from None

    def _read_body(self, headers: dict[str, str]) -> Iterator[bytes]:
        if headers.get("transfer-encoding") == "chunked":
            while size := int(self._read_line(), 16):
                yield self._read_exactly(size)
                self._read_line()
            self._read_line()
        elif "content-length" in headers:
            yield self._read_exactly(int(headers["content-length"]))
        elif headers.get("connection", "").lower() == "close":
            yield self._read_to_end()

    def _read_line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            self._receive()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _read_exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._receive()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def _read_to_end(self) -> bytes:
        try:
            while True:
                self._receive()
        except BrokenError:
            return bytes(self._buffer)

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_PIECE_BYTES)
        except TimeoutError:
            self.close()
            raise _silent(self._home, self._timeout_s) from None
        except OSError:
            data = b""
        if not data:
            raise self._broken()
        self._buffer += data

    def _broken(self) -> BrokenError:
        self.close()
        return BrokenError(
            f"the daemon went away before it had answered: see {self._home}/daemon.log, and try again"
        )


def make_error(status: int, body: bytes) -> StokerError:
    """Return the error of a problem document."""
    from stoker.client.fast_json import loads

    try:
        problem = loads(body.decode())
        detail, field = str(problem["detail"]), problem.get("field")
    except (ValueError, KeyError, TypeError):
        detail, field = f"the daemon answered with status {status}", None
    kinds = {400: UsageError, 404: NotFoundError, 409: ConflictError}
    return kinds.get(status, StokerError)(detail, field=field)


def quote(text: str) -> str:
    """Quote a value for a query string."""
    return "".join(
        chr(byte) if byte in _PLAIN else f"%{byte:02X}"
        for byte in text.encode("utf-8", "surrogateescape")
    )


def _connect(home: str, timeout_s: float) -> Socket:
    path = f"{home}/{SOCKET_NAME}"
    sock = Socket(AF_UNIX, SOCK_STREAM)
    folder = -1
    try:
        if len(os.fsencode(path)) > _MAX_PATH_BYTES:
            folder = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            path = f"/proc/self/fd/{folder}/{SOCKET_NAME}"
        # A non-blocking connect would fail if the listener's backlog is full.
        sock.setsockopt(SOL_SOCKET, SO_SNDTIMEO, _timeval(timeout_s))
        sock.connect(path)
        sock.settimeout(timeout_s)
        _check_peer(sock, home)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
        sock.close()
        raise _no_daemon(home, died=isinstance(error, ConnectionRefusedError)) from None
    except BlockingIOError:
        sock.close()
        raise _silent(home, timeout_s) from None
    except OSError as error:
        sock.close()
        raise StokerError(f"cannot connect to {home}/{SOCKET_NAME}: {error}") from None
    finally:
        if folder >= 0:
            os.close(folder)
    return sock


def _check_peer(sock: Socket, home: str) -> None:
    """Refuse a socket that another user serves."""
    peer = sock.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)  # pid, uid, gid
    uid = int.from_bytes(peer[4:8], sys.byteorder)
    if uid == os.getuid():
        return
    import pwd

    sock.close()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"user {uid}"
    raise StokerError(
        f"{home}/{SOCKET_NAME} is served by {name}, not by a daemon of yours: remove it"
    )


def _no_daemon(home: str, *, died: bool) -> NoDaemonError:
    from stoker.client.daemon_process import daemon_pid
    from stoker.client.node_role import describe_head, head_of

    pid = daemon_pid(home)
    head = head_of(home)
    if pid is None and head is not None:
        text = describe_head(head)
    elif pid is None:
        text = f"no daemon runs for {home}: stoker add or stoker daemon start starts one"
    else:
        text = unreachable(home, pid)
    return NoDaemonError(text, died=died)


def unreachable(home: str, pid: int) -> str:
    """Describe a daemon that runs but does not listen."""
    who = f"pid {pid}" if pid else "its pid is not known"
    return (
        f"a daemon runs for {home} ({who}), but it does not listen at {home}/{SOCKET_NAME}:"
        " stoker daemon restart replaces it, and jobs run on"
    )


def _timeval(seconds: float) -> bytes:
    """Pack a time as the kernel's struct timeval."""
    whole = int(seconds)
    parts = (whole, int((seconds - whole) * 1e6))
    return b"".join(part.to_bytes(8, sys.byteorder) for part in parts)


def _silent(home: str, timeout_s: float) -> StokerError:
    return StokerError(f"the daemon has not answered for {timeout_s:.0f}s: see {home}/daemon.log")
