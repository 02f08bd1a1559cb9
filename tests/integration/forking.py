"""Stoker and its queue, whose verbs and daemons are forks: see `fork_server`."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

from conftest import Ended, Stoker
from integration.daemon_fixture import Queue
from integration.fork_server import Fork, ForkServer, await_end
from patience import PATIENCE_S
from stoker.client import autostart
from stoker.client.client import Client
from stoker.testing.state import FakeGpus


class ForkingStoker(Stoker):
    """Starts the real program; what runs to its end is a fork, what the test steers is a fresh process."""

    def __init__(self, folder: Path, box: FakeGpus, server: ForkServer) -> None:
        super().__init__(folder, box)
        self.server = server

    def run(
        self,
        *words: str | bytes,
        lines: str | bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> Ended:
        """Run `stoker run WORDS` to its end, with these lines on standard input."""
        return self.execute("run", *words, lines=lines, env=env, timeout_s=timeout_s)

    def execute(
        self,
        *words: str | bytes,
        lines: str | bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> Ended:
        """Run `stoker WORDS` to its end, with these lines on standard input."""
        whole_env = {**self.env, **(env or {})}
        if not self.server.can_run(whole_env):
            return self.end(self.start(*words, env=env), lines, timeout_s)
        data = lines.encode() if isinstance(lines, str) else lines
        return self.server.run(words, whole_env, self.work, data, timeout_s)


class ForkingQueue(Queue):
    """`stoker VERB …` in a home of the test's own, on the fake GPUs 0 and 1."""

    def __init__(self, stoker: ForkingStoker) -> None:
        super().__init__(stoker)
        self._execute = stoker.execute
        self._server = stoker.server
        self._daemons: list[Fork] = []

    def start(self, gpus: str | None = "0,1") -> None:
        """Start the daemon, on these GPUs; None for all."""
        if not self._server.can_run(self.env):
            super().start(gpus)
            return
        with patch.object(autostart, "start_and_wait", self._fork_daemon):
            super().start(gpus)

    def __call__(
        self,
        *words: str | bytes,
        stdin: str | bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run `stoker WORDS` to its end."""
        return self._execute(*words, lines=stdin, env=env)

    def until_running(self, job: int) -> int:
        """Wait until a job runs; its pid."""
        with Client(str(self.home)) as client:

            def pid() -> int:
                found = client.show(job)
                return found.attempts[-1].pid or 0 if found.state == "running" else 0

            return self.stoker.until(pid, f"job {job} runs")

    def kill_daemon(self) -> None:
        """Kill the daemon with SIGKILL; the next verb starts another."""
        with Client(str(self.home)) as client:
            pidfd = os.pidfd_open(client.status().pid)
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            # All its threads are gone, so its socket is closed: it can be a zombie before that.
            assert select.select([pidfd], [], [], PATIENCE_S)[0], "the daemon is gone"
        finally:
            os.close(pidfd)

    def close(self) -> None:
        """End the daemon and all it runs."""
        super().close()
        for fork in self._daemons:
            await_end(fork)

    def _fork_daemon(
        self, _what: str, words: Sequence[str], log: str, env: Mapping[str, str], _patience: float
    ) -> str:
        arguments = words[words.index(autostart.DAEMON) + 1 :]
        fork, answer = self._server.start_daemon(arguments, log, env)
        self._daemons.append(fork)
        return answer
