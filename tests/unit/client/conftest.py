"""Fakes of the daemon: scripted servers, and a program that is started in its place."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

Script = Callable[[socket.socket], None]


class Server:
    """Handles each connection by the next script, and all further ones by the last script."""

    def __init__(self, home: Path, *scripts: Script) -> None:
        self.path = home / "stoker.sock"
        self._scripts = list(scripts)
        folder = os.open(home, os.O_PATH)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(f"/proc/self/fd/{folder}/stoker.sock")
        os.close(folder)
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def die(self) -> None:
        """Close the socket as a kill does: its file stays."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def close(self) -> None:
        """Stop serving."""
        self.die()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
                with suppress(OSError):
                    script(connection)


def read_request(connection: socket.socket) -> tuple[bytes, bytes]:
    """Read the head and the body of one request; empty if the client has gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return b"", b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    size = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            size = int(line.partition(b":")[2])
    while len(body) < size:
        body += connection.recv(65536)
    return head, body


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return an empty home."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


@pytest.fixture
def serve(home: Path) -> Iterator[Callable[..., Server]]:
    """Return a function that starts scripted servers in that home."""
    made: list[Server] = []

    def make(*scripts: Script) -> Server:
        made.append(Server(home, *scripts))
        return made[-1]

    yield make
    for server in made:
        server.close()


_DAEMON = """
import fcntl, os, socket, sys, time
home = os.environ["STOKER_HOME"]
ready = int(sys.argv[sys.argv.index("--ready-fd") + 1])
with open(home + "/started", "a") as file:
    print(os.getpid(), file=file)
with open(home + "/words", "w") as file:
    print(*sys.argv[1:], file=file)
how = os.environ.get("DAEMON_HOW", "")
if how == "error":
    os.write(ready, b"error: the database is broken\\n")
    sys.exit(1)
if how == "die":
    sys.exit(1)
lock = os.open(home + "/daemon.lock", os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX)
if os.path.exists(home + "/stoker.sock"):
    os.unlink(home + "/stoker.sock")
server = socket.socket(socket.AF_UNIX)
os.chdir(home)
server.bind("stoker.sock")
os.chdir("/")
time.sleep(0.1)
server.listen(100)
print("up")
sys.stdout.flush()
os.write(ready, b"ready\\n")
os.close(ready)
kept = []
while True:
    kept.append(server.accept())
"""


class FakeDaemon:
    """A program that is started in place of the daemon, and ended with the test."""

    def __init__(self, home: Path, folder: Path) -> None:
        package = folder / "stoker" / "daemon"
        package.mkdir(parents=True)
        (folder / "stoker" / "__init__.py").touch()
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(_DAEMON)
        self.home = home
        self.folder = folder

    def pids(self) -> list[int]:
        """Return the pids of all started processes."""
        try:
            return [int(line) for line in (self.home / "started").read_text().split()]
        except FileNotFoundError:
            return []

    def kill(self) -> None:
        """Kill all started processes."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def fake_daemon(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeDaemon]:
    """Start this program instead of the daemon."""
    fake_daemon = FakeDaemon(home, tmp_path / "path")
    monkeypatch.setattr("stoker.interpreter._ROOT", str(fake_daemon.folder))
    yield fake_daemon
    fake_daemon.kill()
