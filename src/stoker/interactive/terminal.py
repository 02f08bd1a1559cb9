"""The process that owns the terminal of a job.

It connects to the client, opens a pty, starts the command in it and passes bytes between both. It writes the
command's output to the job's log too. When the client goes away, the command gets SIGHUP, as from any
terminal that is closed. The process ends as its command ended.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import sys
import termios
import time
from _socket import MSG_DONTWAIT, SO_SNDTIMEO, SOL_SOCKET
from _socket import socket as Socket  # noqa: N812 - the class of `socket`, without its imports

from stoker.interactive.session import (
    DATA,
    EXIT,
    NOTICE,
    OUTPUT,
    WINDOW,
    Folder,
    Unpacker,
    pack,
)

_PIECE_BYTES = 65536
_MOST_PENDING_BYTES = 1 << 18
_WINDOW_BYTES = 8
_FIRST_WINDOW_S = 10.0
_IUTF8 = 0o40000
# Stoker sends the signals that end a job to its whole tree: the command decides what they do.
PASSED_OVER = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
)


class Terminal:
    """A pty with a command in it, and the connection to its client."""

    def __init__(self, folder: Folder, key: str, client: Socket) -> None:
        self._folder = folder
        self._key = key
        self._client: Socket | None = client
        self._notices = folder.receive(key)
        self._unpacker = Unpacker()
        self._to_client = bytearray()
        self._to_command = bytearray()
        self._touched_at = time.monotonic()
        self._master: int | None = None
        self._pid = 0
        self._exited = -1  # pidfd of the command

    def start(self, words: list[str]) -> None:
        """Start the command, as soon as the size of the client's window is known."""
        master, slave = os.openpty()
        modes = termios.tcgetattr(slave)
        modes[0] |= _IUTF8
        termios.tcsetattr(slave, termios.TCSANOW, modes)
        self._master = master
        self._read_first_window()
        self._pid = os.fork()
        if not self._pid:
            _execute(words, slave)
        os.close(slave)
        os.set_blocking(master, False)
        self._exited = os.pidfd_open(self._pid)

    def serve(self) -> int:
        """Pass bytes until the command has ended; returns its wait status."""
        while self._exited not in self._wait():
            pass
        _pid, status = os.waitpid(self._pid, 0)
        self._drain()
        self._say(EXIT, status.to_bytes(4, "big"))
        self._send_rest()
        self._folder.remove(self._key)
        return status

    def _wait(self) -> set[int]:
        """Wait for events and handle them; returns the descriptors that were ready."""
        poll = select.poll()
        poll.register(self._exited, select.POLLIN)
        poll.register(self._notices, select.POLLIN)
        if self._client is not None:
            reads = len(self._to_command) < _MOST_PENDING_BYTES
            poll.register(
                self._client,
                (select.POLLIN if reads else 0) | (select.POLLOUT if self._to_client else 0),
            )
        if self._master is not None:
            reads = len(self._to_client) < _MOST_PENDING_BYTES
            poll.register(
                self._master,
                (select.POLLIN if reads else 0) | (select.POLLOUT if self._to_command else 0),
            )
        ready = dict(poll.poll())
        if self._notices.fileno() in ready:
            self._pass_notice()
        if self._master is not None and self._master in ready:
            self._serve_command(ready[self._master])
        if self._client is not None and self._client.fileno() in ready:
            self._serve_client(ready[self._client.fileno()])
        return set(ready)

    def _pass_notice(self) -> None:
        try:
            self._say(NOTICE, self._notices.recv(_PIECE_BYTES))
        except BlockingIOError:
            return

    def _serve_command(self, events: int) -> None:
        assert self._master is not None
        if events & select.POLLOUT:
            try:
                del self._to_command[: os.write(self._master, self._to_command)]
            except BlockingIOError:
                pass
            except OSError:
                self._to_command.clear()
        if events & ~select.POLLOUT and not self._read_output():
            self._close_master()

    def _read_output(self) -> bool:
        """Pass on a piece of output; False if there is none now, or never again."""
        assert self._master is not None
        try:
            data = os.read(self._master, _PIECE_BYTES)
        except BlockingIOError:
            return True
        except OSError:  # EIO: no process has the terminal open any more
            return False
        if not data:
            return False
        _write_log(data)
        self._say(OUTPUT, data)
        return True

    def _serve_client(self, events: int) -> None:
        assert self._client is not None
        if events & select.POLLOUT:
            self._send()
        if events & ~select.POLLOUT:
            self._receive()

    def _receive(self) -> None:
        assert self._client is not None
        try:
            data = self._client.recv(_PIECE_BYTES, MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._hang_up()
            return
        try:
            for kind, payload in self._unpacker.feed(data):
                self._heed(kind, payload)
        except ValueError:
            self._hang_up()

    def _heed(self, kind: bytes, payload: bytes) -> None:
        if kind == DATA:
            self._to_command += payload
            now = time.monotonic()
            if now - self._touched_at >= 1.0:
                self._touched_at = now
                self._folder.touch(self._key)
        elif kind == WINDOW and len(payload) == _WINDOW_BYTES and self._master is not None:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, payload)

    def _say(self, kind: bytes, payload: bytes) -> None:
        if self._client is not None:
            self._to_client += pack(kind, payload)

    def _send(self) -> None:
        assert self._client is not None
        try:
            del self._to_client[: self._client.send(self._to_client, MSG_DONTWAIT)]
        except BlockingIOError:
            return
        except OSError:
            self._hang_up()

    def _send_rest(self) -> None:
        """Send what is pending; a client that does not read gets a few seconds for each piece."""
        if self._client is None:
            return
        self._client.setsockopt(SOL_SOCKET, SO_SNDTIMEO, (5).to_bytes(8, sys.byteorder) + bytes(8))
        try:
            self._client.sendall(self._to_client)
        except OSError:
            return

    def _hang_up(self) -> None:
        """Forget the client; the kernel sends SIGHUP to the command when its terminal closes."""
        if self._client is not None:
            self._client.close()
            self._client = None
            self._close_master()

    def _close_master(self) -> None:
        if self._master is not None:
            os.close(self._master)
            self._master = None

    def _drain(self) -> None:
        """Read what the command has written before it ended; processes it leaves may write on."""
        deadline = time.monotonic() + 1.0
        while self._master is not None and time.monotonic() < deadline:
            if not select.select([self._master], [], [], 0)[0] or not self._read_output():
                return

    def _read_first_window(self) -> None:
        assert self._client is not None
        if select.select([self._client], [], [], _FIRST_WINDOW_S)[0]:
            self._receive()


def _write_log(data: bytes) -> None:
    while data:
        try:
            data = data[os.write(1, data) :]
        except OSError:  # a full disk must not stop the terminal
            return


def _execute(words: list[str], slave: int) -> None:
    """Become the command, with the pty as its controlling terminal."""
    code = 127
    try:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for fd in range(3):
            os.dup2(slave, fd)
        if slave > 2:
            os.close(slave)
        for number in (*PASSED_OVER, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(words[0], words, os.environ)  # noqa: S606 - it is what the user asked for
    except OSError as error:
        code = 127 if error.errno == errno.ENOENT else 126
        reason = "command not found" if code == 127 else error.strerror
        os.write(2, os.fsencode(f"stoker: {words[0]}: {reason}\n"))
    finally:
        os._exit(code)


def end_like(status: int) -> None:
    """End this process as the wait status of another one says."""
    number = status & 0x7F
    if number:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(status >> 8)


def main() -> None:
    """Run a command in a terminal: FOLDER CLIENT COMMAND…."""
    path, client, *words = sys.argv[1:]
    for number in PASSED_OVER:
        signal.signal(number, signal.SIG_IGN)
    try:
        folder = Folder(path)
        connection = folder.connect(client)
    except OSError as error:
        _write_log(os.fsencode(f"stoker: no terminal is connected: {error.strerror or error}\n"))
        os._exit(128 + signal.SIGHUP)
    key = f"{os.environ['STOKER_JOB_ID']}.{os.environ['STOKER_ATTEMPT']}"
    terminal = Terminal(folder, key, connection)
    terminal.start(words)
    end_like(terminal.serve())
