"""Connects the user's terminal to the terminal of a job."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import termios
from _socket import socket as Socket  # noqa: N812 - the class of `socket`, without its imports

from stoker.interactive.session import DATA, EXIT, NOTICE, OUTPUT, WINDOW, Unpacker, pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE_BYTES = 65536
_NO_WINDOW = bytes(8)
# Signals that end this process; the terminal is restored first.
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_IGNORED = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class TerminalClient:
    """Passes bytes, sizes of the window and notices between a terminal and a job's process."""

    def __init__(self, connection: Socket, input_fd: int = 0, output_fd: int = 1) -> None:
        self._connection = connection
        self._input = input_fd
        self._output = output_fd
        self._unpacker = Unpacker()
        self.status: int | None = None  # wait status of the command
        self.signal: int | None = None  # the signal that ended this client

    def run(self) -> None:
        """Pass bytes until the command has ended, the connection breaks or a signal comes."""
        with self._signals() as signals, _raw_mode(self._input):
            self._send_window()
            poll = select.poll()
            for fd in (self._input, self._connection.fileno(), signals):
                poll.register(fd, select.POLLIN)
            goes_on = True
            while goes_on:
                ready = [fd for fd, _events in poll.poll()]
                if signals in ready:
                    goes_on = self._heed_signals(os.read(signals, 4096))
                if goes_on and self._connection.fileno() in ready:
                    goes_on = self._pass_output()
                if goes_on and self._input in ready:
                    goes_on = self._pass_input()

    def _heed_signals(self, numbers: bytes) -> bool:
        for number in numbers:
            if number == signal.SIGWINCH:
                self._send_window()
            elif number in _ENDING:
                self.signal = number
                return False
        return True

    def _pass_output(self) -> bool:
        try:
            data = self._connection.recv(_PIECE_BYTES)
        except OSError:
            return False
        for kind, payload in self._unpacker.feed(data):
            if kind == OUTPUT:
                _write_all(self._output, payload)
            elif kind == NOTICE:
                _write_all(self._output, b"\r\nstoker: " + payload + b"\r\n")
            elif kind == EXIT:
                self.status = int.from_bytes(payload, "big")
                return False
        return bool(data)

    def _pass_input(self) -> bool:
        try:
            data = os.read(self._input, _PIECE_BYTES)
        except OSError:
            data = b""
        if not data:  # the terminal was closed
            self.signal = signal.SIGHUP
            return False
        return self._send(DATA, data)

    def _send_window(self) -> None:
        try:
            size = fcntl.ioctl(self._input, termios.TIOCGWINSZ, _NO_WINDOW)
        except OSError:
            size = _NO_WINDOW
        self._send(WINDOW, size)

    def _send(self, kind: bytes, payload: bytes) -> bool:
        # A failure is no reason to stop: the exit status may wait to be read.
        with contextlib.suppress(OSError):
            self._connection.sendall(pack(kind, payload))
        return True

    @contextlib.contextmanager
    def _signals(self) -> Iterator[int]:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        old_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        caught = {
            number: signal.signal(number, lambda *_details: None)
            for number in (*_ENDING, signal.SIGWINCH)
        }
        ignored = {number: signal.signal(number, signal.SIG_IGN) for number in _IGNORED}
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(old_fd)
            for number, handler in (caught | ignored).items():
                signal.signal(number, handler)
            os.close(reader)
            os.close(writer)


@contextlib.contextmanager
def _raw_mode(fd: int) -> Iterator[None]:
    """Let every key reach the job; restore the terminal however this ends."""
    import tty

    before = termios.tcgetattr(fd)
    try:
        tty.setraw(fd, termios.TCSANOW)
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(fd, termios.TCSANOW, before)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
