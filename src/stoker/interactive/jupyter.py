"""The process that runs a Jupyter server for a job.

It gives the server a free port of this machine and a new token, sends the link to the client once the server
answers, and asks the server from time to time when it was used last. The token is in a file of mode 0600:
it is in no command line and in no log. The process ends as the server ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from _socket import socket as Socket  # noqa: N812
from http.client import HTTPConnection, HTTPException
from socket import SO_REUSEADDR, SOL_SOCKET, socket

from stoker.interactive.session import LINK, TOKEN, Folder, pack
from stoker.interactive.terminal import PASSED_OVER, end_like

_TRIES = 5
_ASK_EVERY_S = 0.2
_CHECK_USE_S = 5.0
_ANSWER_S = 5.0
_MAX_ANSWER_BYTES = 1 << 16
_LISTENING = "0A"
_LOCALHOST = "127.0.0.1"


class JupyterServer:
    """A Jupyter server on a port of this machine, started by `start`."""

    def __init__(self, folder: Folder, path: str, key: str, words: list[str]) -> None:
        self._folder = folder
        self._key = key
        self._words = words
        self._token_file = os.path.join(path, f"{key}{TOKEN}")
        self._token = ""
        self._port = 0
        self._exited = -1  # pidfd of the server
        self._pid = 0

    @property
    def link(self) -> str:
        """The link for a browser."""
        page = "lab" if os.path.basename(self._words[0]) == "jupyter-lab" else "tree"
        return f"http://{_LOCALHOST}:{self._port}/{page}?token={self._token}"

    def start(self) -> int | None:
        """Start the server until it answers; its wait status if it ends before, at every try."""
        status = None
        for _try in range(_TRIES):
            self._spawn()
            while not select.select([self._exited], [], [], _ASK_EVERY_S)[0]:
                if self.used_at() is not None:
                    return None
            status = os.waitpid(self._pid, 0)[1]
            os.close(self._exited)
            if not _is_taken(self._port):
                return status  # another port would not help
        return status

    def serve(self, notices: Socket) -> int:
        """Note when the server is used, and print notices, until it ends; returns its wait status."""
        while True:
            descriptors = [self._exited, notices.fileno()]
            ready = select.select(descriptors, [], [], _CHECK_USE_S)[0]
            if self._exited in ready:
                return os.waitpid(self._pid, 0)[1]
            if notices.fileno() in ready:
                _print(notices.recv(4096))
            used_at = self.used_at()
            if used_at is not None:
                self._folder.touch(self._key, used_at)

    def close(self) -> None:
        """Remove the files of the server."""
        self._folder.remove_attempt(self._key)

    def used_at(self) -> float | None:
        """When the server was used last; None while it does not answer.

        The token goes only to a port at which this user listens.
        """
        if not _is_ours(self._port):
            return None
        connection = HTTPConnection(_LOCALHOST, self._port, timeout=_ANSWER_S)
        try:
            connection.request(
                "GET", "/api/status", headers={"Authorization": f"token {self._token}"}
            )
            answer = connection.getresponse()
            found = json.loads(answer.read(_MAX_ANSWER_BYTES)) if answer.status == 200 else None
            return None if found is None else _read_time(found["last_activity"])
        except (OSError, HTTPException, ValueError, KeyError, TypeError):
            return None
        finally:
            connection.close()

    def _spawn(self) -> None:
        with socket() as free:
            free.bind((_LOCALHOST, 0))
            self._port = free.getsockname()[1]
        self._token = os.urandom(24).hex()
        self._folder.remove(f"{self._key}{TOKEN}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(self._token_file, flags, 0o600), "w") as file:
            file.write(self._token)
        options = [f"--ip={_LOCALHOST}", f"--port={self._port}", "--port-retries=0", "--no-browser"]
        self._pid = os.posix_spawn(
            self._words[0],
            [self._words[0], *options, *self._words[1:]],
            {**os.environ, "JUPYTER_TOKEN_FILE": self._token_file},
            setsigdef=PASSED_OVER,
        )
        self._exited = os.pidfd_open(self._pid)


def _is_ours(port: int) -> bool:
    """Whether a process of this user listens at a port of this machine."""
    wanted = f"0100007F:{port:04X}"
    with open("/proc/net/tcp") as file:
        for line in file:
            fields = line.split()
            if fields[1] == wanted and fields[3] == _LISTENING:
                return int(fields[7]) == os.getuid()
    return False


def _is_taken(port: int) -> bool:
    with socket() as sock:
        sock.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        try:
            sock.bind((_LOCALHOST, port))
        except OSError:
            return True
    return False


def _read_time(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _print(text: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(1, b"stoker: " + text + b"\n")


def main() -> None:
    """Run a Jupyter server: FOLDER CLIENT PROGRAM ARGUMENTS…."""
    path, client, *words = sys.argv[1:]
    for number in PASSED_OVER:
        signal.signal(number, signal.SIG_IGN)
    try:
        folder = Folder(path)
        connection = folder.connect(client)
    except OSError as error:
        _print(
            os.fsencode(f"the terminal that waited for the link is gone: {error.strerror or error}")
        )
        os._exit(128 + signal.SIGHUP)
    key = f"{os.environ['STOKER_JOB_ID']}.{os.environ['STOKER_ATTEMPT']}"
    server = JupyterServer(folder, path, key, words)
    with contextlib.closing(server):
        try:
            status = server.start()
        except OSError as error:
            _print(os.fsencode(f"cannot start {words[0]}: {error.strerror}"))
            status = 126 << 8
        if status is None:
            notices = folder.receive(key)
            with contextlib.suppress(OSError):
                connection.sendall(pack(LINK, server.link.encode()))
            connection.close()
            status = server.serve(notices)
    end_like(status)
