"""Runs attempts on this machine, through a shepherd of its own."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Mapping, Sequence

import msgspec

from stoker.core.slot import Slot
from stoker.executors.contract import ExecutorLostError, Finished, Launch, Report
from stoker.executors.shepherd import trees
from stoker.executors.shepherd.spawn import Shepherd, start_shepherd


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
        shepherd: Shepherd | None = None,
    ) -> None:
        # If the shepherd itself is killed, what it ran becomes ours, and can still be ended.
        trees.become_subreaper()
        self.pid, self._socket = shepherd or start_shepherd()
        self._name = name
        self._buffer = b""
        self._finishing = False
        self._send(["open", name, journal], ["context", 0, dict(env), cwd, shell])

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
        if not data and self._finishing:
            self.end_orphans()  # none, unless the shepherd was killed in the middle of it
            return [Finished()]
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
        """Ask the shepherd to see the last processes off, and to go."""
        self._finishing = True
        self._send(["finish"])

    def close(self) -> None:
        """Let go of the shepherd; what still runs is killed by it."""
        self._socket.close()

    def end_orphans(self) -> None:
        """After the shepherd's end: kill every tree it left, which are our children now."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        while orphans := {pid for pid in trees.living_children() if self._is_ours(pid)}:
            trees.send(orphans, signal.SIGKILL)
            for pid in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _is_ours(self, pid: int) -> bool:
        return f"{self._name}:" in (trees.cookie_of(pid) or "")

    def _send(self, *messages: Sequence[object]) -> None:
        data = f"{json.dumps(messages)}\n".encode()
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BrokenPipeError:
                return  # the shepherd is gone: `observe` tells
            except BlockingIOError:
                select.select([], [self._socket], [])
