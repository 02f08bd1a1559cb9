"""Starts verbs and daemons as forks of a process that has imported Stoker: it takes a fifth of the time.

Each is a process of its own, with its own environment, working folder, pipes and exit code. It differs from
a fresh process in the modules that it has imported, in its command line, and in the environment that /proc
shows. A test of these, or of variables that Python reads when it starts, uses a fresh process.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from conftest import Ended
from patience import PATIENCE_S, until

_MAIN = Path(__file__).with_name("fork_server_main.py")
# Variables that act while a process starts, or while modules are imported: by these beginnings.
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "STOKER_FAILPOINT", "MALLOC_", "GLIBC_")


class Fork:
    """A process that the server has forked."""

    def __init__(self, status_fd: int) -> None:
        self._status = os.fdopen(status_fd, "rb", buffering=0)
        self.pid = int(self._status.readline())

    def wait(self) -> int:
        """Wait for its end; the exit code."""
        return int(self._status.readline())

    def fileno(self) -> int:
        """What becomes readable when it ends."""
        return self._status.fileno()

    def has_ended(self) -> bool:
        """Whether it has ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            return bool(selector.select(0))

    def close(self) -> None:
        """Forget it."""
        self._status.close()


class ForkServer:
    """The process that forks; all that it starts sees the same fake driver."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._start_env = _read_at_start(env)
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(_MAIN), str(theirs.fileno())],
                stdin=subprocess.PIPE,  # Python's files depend on what they are opened on: pipes
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"PATH": os.environ["PATH"], **self._start_env},
                cwd="/",
                pass_fds=(theirs.fileno(),),
            )

    def can_run(self, env: Mapping[str, str]) -> bool:
        """Whether a fork would be as a fresh process with this environment."""
        return _read_at_start(env) == self._start_env

    def run(
        self,
        words: Sequence[str | bytes],
        env: Mapping[str, str],
        cwd: Path,
        stdin: bytes = b"",
        timeout_s: float = PATIENCE_S,
    ) -> Ended:
        """Run `stoker WORDS` to its end, and to the end of all that writes to its output."""
        with ExitStack() as stack:
            input_reader, writer = _pipe(stack)
            out, output_writer = _pipe(stack)
            err, error_writer = _pipe(stack)
            null = stack.enter_context(open(os.devnull, "rb"))
            theirs = [input_reader, output_writer, error_writer]
            fork = self._fork(words, env, str(cwd), theirs, null, is_daemon=False)
            stack.callback(fork.close)
            for file in theirs:
                file.close()
            try:
                found = _communicate(writer, stdin, (out, err), timeout_s)
            except BaseException:
                if not fork.has_ended():
                    os.kill(fork.pid, signal.SIGKILL)
                raise
            return Ended(fork.wait(), *found)

    def start_daemon(
        self, arguments: Sequence[str], log: str, env: Mapping[str, str]
    ) -> tuple[Fork, str]:
        """Start a daemon; the line that it writes when it is ready or fails comes with it."""
        with ExitStack() as stack:
            reader, writer = _pipe(stack)
            output = stack.enter_context(open(log, "ab"))
            null = stack.enter_context(open(os.devnull, "rb"))
            streams: list[IO[bytes]] = [null, output, output]
            fork = self._fork(arguments, env, "/", streams, writer, is_daemon=True)
            writer.close()
            return fork, reader.readline().decode().strip()

    def _fork(
        self,
        words: Sequence[str | bytes],
        env: Mapping[str, str],
        cwd: str,
        streams: Sequence[IO[bytes]],
        inherited: IO[bytes],
        *,
        is_daemon: bool,
    ) -> Fork:
        request = {
            "words": [os.fsencode(word) for word in words],
            "env": {os.fsencode(name): os.fsencode(value) for name, value in env.items()},
            "cwd": cwd,
            "is_daemon": is_daemon,
        }
        status_fds = os.pipe()
        with ExitStack() as stack:
            file = stack.enter_context(open(os.memfd_create("request"), "w+b"))
            pickle.dump(request, file)
            file.flush()
            file.seek(0)
            status_writer = stack.enter_context(open(status_fds[1], "wb", buffering=0))
            sent = [file, *streams, status_writer, inherited]
            socket.send_fds(self._requests, [b"x"], [each.fileno() for each in sent])
        return Fork(status_fds[0])

    def close(self) -> None:
        """End the server; what it has started runs on."""
        self._requests.close()
        said = self._process.communicate(timeout=PATIENCE_S)
        assert (self._process.returncode, *said) == (0, b"", b"")


def await_end(fork: Fork) -> None:
    """Wait until a daemon that was stopped is gone."""
    until(fork.has_ended, f"process {fork.pid} ends")
    fork.close()


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_READ_AT_START)}


def _pipe(stack: ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    reader, writer = os.pipe()
    return (
        stack.enter_context(open(reader, "rb", buffering=0)),
        stack.enter_context(open(writer, "wb", buffering=0)),
    )


def _communicate(
    writer: IO[bytes], data: bytes, outputs: tuple[IO[bytes], IO[bytes]], timeout_s: float
) -> tuple[bytes, bytes]:
    """Write all input and read all output, as Popen.communicate does."""
    deadline = time.monotonic() + timeout_s
    found: dict[int, list[bytes]] = {file.fileno(): [] for file in outputs}
    left = memoryview(data)
    os.set_blocking(writer.fileno(), False)
    with selectors.DefaultSelector() as selector:
        for file in outputs:
            selector.register(file, selectors.EVENT_READ)
        if left:
            selector.register(writer, selectors.EVENT_WRITE)
        else:
            writer.close()
        while selector.get_map():
            ready = selector.select(deadline - time.monotonic())
            assert ready, f"not over within {timeout_s} s: {found}"
            for key, _events in ready:
                if key.fd in found:
                    chunk = os.read(key.fd, 1 << 20)
                    found[key.fd].append(chunk)
                    is_over = not chunk
                else:
                    left = _write(key.fd, left)
                    is_over = not left
                if is_over:
                    selector.unregister(key.fileobj)
                    if key.fileobj is writer:
                        writer.close()
    out, err = (b"".join(chunks) for chunks in found.values())
    return out, err


def _write(fd: int, data: memoryview) -> memoryview:
    """Write what fits; what is left."""
    try:
        return data[os.write(fd, data) :]
    except BrokenPipeError:  # it has ended, or closed its input
        return data[:0]
