"""Files and messages of an interactive job, and the command lines of its own processes.

The folder `terminals` of the home belongs to its owner alone and holds two kinds of sockets:

- `CLIENT.sock`: the client listens here, and the job's process connects when it starts.
- `JOB.ATTEMPT`: the job's process gets notices of the daemon here, as datagrams. The time of the last
  change of this file is the time of the last use: the process sets it when the user types.

`JOB.ATTEMPT.token` is the secret of a Jupyter server.
"""

from __future__ import annotations

import os
import sys
from _socket import AF_UNIX, SO_PEERCRED, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET
from _socket import socket as Socket  # noqa: N812 - the class of `socket`, without its imports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "terminals"
TOKEN = ".token"  # noqa: S105 - of a Jupyter server: the ending of its file
# Kinds of messages to the job's process,
DATA, WINDOW = b"D", b"W"
# and to the client.
OUTPUT, NOTICE, LINK, EXIT = b"O", b"N", b"L", b"X"

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_BOOT = "import sys;sys.path.append(sys.argv.pop(1));from stoker.interactive.{} import main;main()"
_HEADER_BYTES = 5
_MAX_BYTES = 1 << 20
_MAX_NOTICE_BYTES = 2000
_CREDENTIALS_BYTES = 12


def process_command(program: str, home: str, client: str | None, words: list[str]) -> list[str]:
    """Return the command that runs `words` in the job's own process: `terminal` or `jupyter`."""
    boot = ["-I", "-S", "-c", _BOOT.format(program), _ROOT]
    return [sys.executable, *boot, os.path.join(home, FOLDER), client or "", *words]


def pack(kind: bytes, payload: bytes) -> bytes:
    """Return a message: its kind, its length, its payload."""
    return kind + len(payload).to_bytes(4, "big") + payload


class Unpacker:
    """Splits a stream into messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the kind and payload of every message that is complete; ValueError for a bad length."""
        rest = self._rest
        rest += data
        while len(rest) >= _HEADER_BYTES:
            end = _HEADER_BYTES + int.from_bytes(rest[1:_HEADER_BYTES], "big")
            if end > _MAX_BYTES:
                raise ValueError("a message is too long")
            if len(rest) < end:
                return
            message = bytes(rest[:1]), bytes(rest[_HEADER_BYTES:end])
            del rest[:end]
            yield message


class Folder:
    """The folder of the sockets. Paths go through its descriptor, because a socket's path is short."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        found = os.fstat(self._fd)
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            os.close(self._fd)
            raise PermissionError(f"other users can enter {path}: chmod 700 {path}")

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)

    def listen(self, client: str) -> Socket:
        """Listen for the process of a job."""
        listener = Socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC)
        self._bind(listener, f"{client}.sock")
        listener.listen(1)
        return listener

    def connect(self, client: str) -> Socket:
        """Connect to a client; OSError if it is gone or belongs to another user."""
        connection = Socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC)
        try:
            connection.connect(self._path(f"{client}.sock"))
            if not is_own(connection):
                raise PermissionError("the client belongs to another user")
        except OSError as error:
            connection.close()
            if isinstance(error, ConnectionRefusedError):
                self.remove(f"{client}.sock")  # its client was killed
            raise
        return connection

    def receive(self, key: str) -> Socket:
        """Open the socket for the notices of an attempt."""
        receiver = Socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC)
        self.remove(key)
        self._bind(receiver, key)
        receiver.setblocking(False)
        return receiver

    def notify(self, key: str, text: str) -> bool:
        """Send a notice to an attempt without waiting; False if nothing receives it."""
        sender = Socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC)
        try:
            sender.setblocking(False)
            sender.sendto(text.encode()[:_MAX_NOTICE_BYTES], self._path(key))
        except OSError:
            return False
        finally:
            sender.close()
        return True

    def touch(self, key: str, used_at: float | None = None) -> None:
        """Record that an attempt is used now, or was used at a Unix time."""
        try:
            os.utime(key, None if used_at is None else (used_at, used_at), dir_fd=self._fd)
        except OSError:
            return  # a full disk, or the file was removed

    def used_at(self, key: str) -> float | None:
        """When an attempt was used last, as a Unix time; None if its file is not there."""
        try:
            return os.stat(key, dir_fd=self._fd, follow_symlinks=False).st_mtime
        except OSError:
            return None

    def keys(self) -> set[str]:
        """The attempts that have files here."""
        names = os.listdir(f"/proc/self/fd/{self._fd}")
        return {name.removesuffix(TOKEN) for name in names if not name.endswith(".sock")}

    def remove_attempt(self, key: str) -> None:
        """Remove the files of an attempt."""
        self.remove(key)
        self.remove(f"{key}{TOKEN}")

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        try:
            os.unlink(name, dir_fd=self._fd)
        except FileNotFoundError:
            return

    def _bind(self, sock: Socket, name: str) -> None:
        mask = os.umask(0o177)
        try:
            sock.bind(self._path(name))
        finally:
            os.umask(mask)

    def _path(self, name: str) -> str:
        return f"/proc/self/fd/{self._fd}/{name}"


def is_own(connection: Socket) -> bool:
    """Whether the other end of a connection is a process of this user."""
    credentials = connection.getsockopt(SOL_SOCKET, SO_PEERCRED, _CREDENTIALS_BYTES)
    return int.from_bytes(credentials[4:8], sys.byteorder) == os.getuid()
