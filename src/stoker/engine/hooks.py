"""Commands that a user wants to be run when a job has ended; they never hold up the queue."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Mapping

from stoker.core.job import Outcome
from stoker.engine.config import Config
from stoker.engine.running_attempt import RunningAttempt
from stoker.interpreter import module_command
from stoker.open_files import with_original_limit

_PATIENCE_S = 60.0
_AT_ONCE = 4
_WAITING_AT_MOST = 1000


class Hooks:
    """Runs `on_finish`, `on_fail` and notifications, a few at a time and each for a minute at most."""

    def __init__(self, config: Config, tell: Callable[[str], None]) -> None:
        self._config = config
        self._tell = tell
        self._last_words: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._few = asyncio.Semaphore(_AT_ONCE)

    def on_end(self, running: RunningAttempt, outcome: Outcome) -> None:
        """Run what is to be run for a job that has come to its end."""
        names = ["on_finish"] if outcome.is_success else ["on_finish", "on_fail"]
        facts = _facts(running, outcome)
        for name in names:
            command = self._config.text(name)
            if command != "none":
                self._begin(name, ["/bin/sh", "-c", command], facts, b"")
        url = self._config.text("notify")
        if url != "none":
            message = json.dumps({"url": url, "title": _title(facts), "body": _body(facts)})
            self._begin("notify", module_command("stoker.notify"), {}, message.encode())

    def close(self) -> None:
        """Let go of what still runs."""
        for task in self._tasks:
            task.cancel()

    def _begin(self, name: str, argv: list[str], facts: Mapping[str, str], data: bytes) -> None:
        if len(self._tasks) >= _WAITING_AT_MOST:
            self._complain(name, "is too slow: for some jobs it was not run")
            return
        task = asyncio.get_running_loop().create_task(self._run(name, argv, facts, data))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, name: str, argv: list[str], facts: Mapping[str, str], data: bytes) -> None:
        async with self._few:
            try:
                process = await asyncio.create_subprocess_exec(
                    *with_original_limit(argv),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.PIPE,
                    env={**os.environ, **facts},
                    cwd="/",
                    start_new_session=True,
                )
            except OSError as error:
                self._complain(name, f"cannot be run: {error.strerror}")
                return
            try:
                _out, said = await asyncio.wait_for(process.communicate(data), _PATIENCE_S)
            except (TimeoutError, asyncio.TimeoutError):
                _kill_group(process.pid)
                await process.wait()
                self._complain(name, f"took longer than {_PATIENCE_S:g} s and was killed")
                return
            except asyncio.CancelledError:
                _kill_group(process.pid)
                raise
        if process.returncode:
            last = said.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
            more = f": {last}" if last else ""
            self._complain(name, f"failed with exit {process.returncode}{more}")
        else:
            self._last_words.pop(name, None)

    def _complain(self, name: str, what: str) -> None:
        """Tell what is wrong with a hook; not again for every job."""
        if self._last_words.get(name) != what:
            self._last_words[name] = what
            self._tell(f"{name} {what}")


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _facts(running: RunningAttempt, outcome: Outcome) -> dict[str, str]:
    facts = running.entry.facts
    return {
        "STOKER_JOB_ID": str(running.attempt.job),
        "STOKER_ATTEMPT": str(running.attempt.number),
        "STOKER_STATE": outcome.state.value,
        "STOKER_REASON": outcome.reason or "",
        "STOKER_NAME": (facts.name if facts else None) or "",
        "STOKER_PROJECT": (facts.request.project if facts else None) or "",
        "STOKER_LOG": running.log or "",
    }


def _title(facts: Mapping[str, str]) -> str:
    name = f" ({facts['STOKER_NAME']})" if facts["STOKER_NAME"] else ""
    return f"Stoker: job {facts['STOKER_JOB_ID']}{name} is {facts['STOKER_STATE']}"


def _body(facts: Mapping[str, str]) -> str:
    return facts["STOKER_REASON"] or "It ended with exit 0."
