"""NVIDIA's Multi-Process Service: one control daemon for each GPU whose jobs use it.

The MPS daemons have folders in the home. They outlive this process, as their jobs do. The next Stoker
finds them there, and ends them when they have no clients.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable

from stoker.engine.running_attempt import RunningAttempt
from stoker.open_files import with_original_limit
from stoker.supervisor.process_tree import MARKER

CONTROL = "nvidia-cuda-mps-control"
_TIMEOUT_S = 5.0
# A fault kills all clients of a server at once; Stoker notices the last one within this time.
_TOGETHER_S = 10.0
_KEY_LENGTH = len("GPU-01234567")
_LONGEST_PIPE = 85  # of a folder in which sockets are made
_MOST_CLIENTS = 40  # that did not ask for MPS; a server refuses clients above 48


class Mps:
    """Starts and ends control daemons, and records which attempts shared one.

    `is_automatic` tells whether jobs that did not ask for MPS may use it.
    """

    def __init__(
        self,
        folder: str,
        tell: Callable[[str], None],
        is_automatic: Callable[[], bool] = lambda: False,
    ) -> None:
        self._folder = folder
        self._tell = tell
        self._is_automatic = is_automatic
        self._is_installed: bool | None = None
        self._clients: dict[str, dict[str, float | None]] = {}
        self._up: set[str] = set()
        self._told = False

    def find(self) -> None:
        """Find the daemons of an earlier Stoker."""
        if os.path.isdir(self._folder):
            self._up = {key for key in os.listdir(self._folder) if self._is_up(key)}

    def may_add(self, running: RunningAttempt) -> bool:
        """Whether an attempt that did not ask for MPS may use it: it can start, and has room."""
        if self._told or len(running.gpus) != 1 or not self._is_automatic():
            return False
        if self._is_installed is None:
            self._is_installed = shutil.which(CONTROL) is not None
        ends = self._clients.get(_key_of(running), {}).values()
        return self._is_installed and sum(ended is None for ended in ends) < _MOST_CLIENTS

    def adopt(self, running: RunningAttempt) -> None:
        """Count an attempt of an earlier Stoker as a client if its GPU has a daemon: it may be one."""
        if len(running.gpus) == 1 and _key_of(running) in self._up:
            self.join(running)

    def serve(self, running: RunningAttempt, argv: list[str]) -> list[str]:
        """The words that start an attempt as a client; unchanged if it cannot be one."""
        variables = self.variables(running)
        if not variables:
            return argv
        return ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items()), *argv]

    def variables(self, running: RunningAttempt) -> dict[str, str]:
        """The variables that make an attempt a client; empty if it cannot be one."""
        if len(running.gpus) != 1:
            return {}  # a daemon serves one GPU
        uuid, key = running.slots[0].keys[0], _key_of(running)
        if key not in self._up and not self._start(key):
            return {}
        self.join(running)
        # By UUID: the daemon numbers its GPUs from 0 again.
        device = {"CUDA_VISIBLE_DEVICES": uuid} if uuid.startswith(("GPU-", "MIG-")) else {}
        return {"CUDA_MPS_PIPE_DIRECTORY": self._pipes(key), **device}

    def join(self, running: RunningAttempt) -> None:
        """Count an attempt among the clients of its GPU's daemon."""
        self._clients.setdefault(_key_of(running), {})[running.key] = None

    def is_client(self, running: RunningAttempt) -> bool:
        """Whether an attempt is a client of a daemon."""
        return any(running.key in clients for clients in self._clients.values())

    def leave(self, running: RunningAttempt, now: float) -> None:
        """Record that an attempt has ended."""
        for clients in self._clients.values():
            if running.key in clients:
                clients[running.key] = now
            for key in [k for k, ended in clients.items() if ended and now - ended > _TOGETHER_S]:
                del clients[key]

    def has_neighbours(self, running: RunningAttempt) -> bool:
        """Whether the daemon of an attempt had other clients when it ended, or just before."""
        return any(
            running.key in clients and len(clients) > 1 for clients in self._clients.values()
        )

    def retire(self) -> None:
        """End every daemon without clients."""
        for key in list(self._up):
            ended = [at is not None for at in self._clients.get(key, {}).values()]
            if all(ended):
                self._up.discard(key)
                self._clients.pop(key, None)
                self._ask(key, "quit")
                shutil.rmtree(os.path.join(self._folder, key), ignore_errors=True)

    def _start(self, key: str) -> bool:
        folder = os.path.join(self._folder, key)
        if len(self._pipes(key)) > _LONGEST_PIPE:
            return self._do_without(
                f"{folder} is too long a path for its sockets, name a shorter STOKER_HOME"
            )
        try:
            for each in (self._folder, folder, self._pipes(key), os.path.join(folder, "log")):
                os.makedirs(each, mode=0o700, exist_ok=True)
            if not self._is_up(key):
                done = self._run(key, ["-d"])
                if done.returncode:
                    return self._do_without(done.stdout.strip() or f"exit {done.returncode}")
        except (OSError, subprocess.TimeoutExpired) as error:
            return self._do_without(str(error))
        self._up.add(key)
        return True

    def _do_without(self, why: str) -> bool:
        if not self._told:
            self._told = True
            self._tell(f"MPS cannot be started, jobs run without it: {why}")
        return False

    def _is_up(self, key: str) -> bool:
        return self._ask(key, "get_server_list") == 0

    def _ask(self, key: str, question: str) -> int:
        try:
            return self._run(key, [], f"{question}\n").returncode
        except (OSError, subprocess.TimeoutExpired):
            return -1

    def _run(self, key: str, words: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
        env = {
            **os.environ,
            MARKER: "mps",
            "CUDA_VISIBLE_DEVICES": key,
            "CUDA_MPS_PIPE_DIRECTORY": self._pipes(key),
            "CUDA_MPS_LOG_DIRECTORY": os.path.join(self._folder, key, "log"),
        }
        with open(os.path.join(self._folder, key, "said"), "w+", encoding="utf-8") as said:
            # To a file: the daemon would keep a pipe open, and `run` would wait for its end.
            done = subprocess.run(
                with_original_limit([CONTROL, *words]),
                env=env,
                input=text,
                stdout=said,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
                start_new_session=True,
            )
            said.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, said.read()[-500:])

    def _pipes(self, key: str) -> str:
        return os.path.join(self._folder, key, "pipe")


def _key_of(running: RunningAttempt) -> str:
    """The GPU of an attempt, abbreviated as CUDA allows: paths of sockets must be short."""
    return running.slots[0].keys[0][:_KEY_LENGTH]
