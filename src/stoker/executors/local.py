"""Runs attempts on this machine, through a shepherd of its own."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

import msgspec

from stoker.core.slot import Slot
from stoker.executors.contract import ExecutorLostError, Launch, Report
from stoker.executors.shepherd import trees

_BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    "from stoker.executors.shepherd.main import main; main()"
)


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """The shepherd is ready."""

    protocol: int
    pid: int


_replies = msgspec.json.Decoder(Report | Hello)


class LocalExecutor:
    """Keeps the executor contract by talking to a shepherd in kill mode: it dies with this process."""

    def __init__(
        self,
        *,
        name: str,
        journal: str,
        env: Mapping[str, str],
        cwd: str,
        shell: str,
        keep_open: Sequence[int] = (),
    ) -> None:
        # If the shepherd itself is killed, what it ran becomes ours, and can still be ended.
        trees.become_subreaper()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self.pid = _spawn_shepherd(theirs.fileno(), journal, name, keep_open)
        self._buffer = b""
        self._finished = False
        self._send(["context", 0, dict(env), cwd, shell])

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._socket.fileno()

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Tell the shepherd what each slot number means."""
        self._send(
            *(
                ["place", slot.index, {"CUDA_VISIBLE_DEVICES": slot.visible}, slot.keys]
                for slot in slots
            )
        )

    def hold(self, slot: int) -> None:
        """Ask for a slot's leases."""
        self._send(["hold", slot])

    def release(self, slot: int, gpu_keys: Sequence[str]) -> None:
        """Give leases back."""
        self._send(["release", slot, list(gpu_keys)])

    def launch(self, launches: Sequence[Launch]) -> None:
        """Send all starts in one write."""
        self._send(*(["start", o.key, 0, o.slot, o.argv, o.log] for o in launches))

    def observe(self) -> list[Report]:
        """Read all reports that have arrived."""
        try:
            data = self._socket.recv(1 << 18, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except ConnectionResetError:
            data = b""
        if not data:
            raise ExecutorLostError("the shepherd process died; its jobs were ended")
        whole, _, self._buffer = (self._buffer + data).rpartition(b"\n")
        replies = _replies.decode_lines(whole)
        return [reply for reply in replies if not isinstance(reply, Hello)]

    def revoke(self, key: str) -> None:
        """Take an attempt back."""
        self._send(["revoke", key])

    def signal(self, key: str, signum: int) -> None:
        """Signal a tree."""
        self._send(["signal", key, int(signum)])

    def kill(self, key: str) -> None:
        """Kill a tree."""
        self._send(["kill", key])

    def finish(self) -> None:
        """Let leftovers have their grace, then see the shepherd off."""
        with contextlib.suppress(OSError):
            self._send(["finish"])
        os.waitpid(self.pid, 0)
        self._socket.close()

    def end_orphans(self) -> None:
        """After the shepherd's death: kill every tree it left, which are our children now."""
        while True:
            trees.send(trees.living_children(), signal.SIGKILL)
            try:
                os.wait4(-1, 0)
            except ChildProcessError:
                return

    def _send(self, *messages: Sequence[object]) -> None:
        data = "".join(json.dumps(message) + "\n" for message in messages).encode()
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BrokenPipeError:
                return  # the shepherd is gone: `observe` tells
            except BlockingIOError:
                select.select([], [self._socket], [])


def _spawn_shepherd(fd: int, journal: str, name: str, keep_open: Sequence[int]) -> int:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    argv = [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, root, str(os.getpid()), journal, name]
    with open(os.devnull, "rb") as null:
        actions = [(os.POSIX_SPAWN_DUP2, null.fileno(), 0), (os.POSIX_SPAWN_DUP2, fd, 3)]
        actions += [(os.POSIX_SPAWN_DUP2, kept, 10 + i) for i, kept in enumerate(keep_open)]
        return os.posix_spawn(
            argv[0], argv, os.environ, file_actions=actions, setsid=True, setsigmask=[]
        )
