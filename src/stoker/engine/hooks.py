"""Runs the user's commands and notifications for ends and marks, without delaying the queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping

from stoker.core.job import Outcome
from stoker.core.lifecycle import Event, State
from stoker.core.waste import Mark
from stoker.engine.config import Config
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.worker_process import run_child
from stoker.interpreter import module_command

_TIMEOUT_S = 60.0
_AT_ONCE = 4
_MAX_WAITING = 1000


class Hooks:
    """Runs hooks and notifications: a few at a time, each for at most a minute."""

    def __init__(self, config: Config, tell: Callable[[str], None]) -> None:
        self._config = config
        self._tell = tell
        self._last_complaint: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._few = asyncio.Semaphore(_AT_ONCE)

    def on_end(self, running: RunningAttempt, outcome: Outcome) -> None:
        """Run the hooks of a job that has ended."""
        is_failure = not outcome.is_success and outcome.event is not Event.PRUNE
        names = ["on-finish", "on-fail"] if is_failure else ["on-finish"]
        facts = _facts(running, outcome.state, outcome.reason or "")
        for name in names:
            self._run_hook(name, facts)
        self._notify(facts, outcome.state.value)

    def on_mark(self, running: RunningAttempt, mark: Mark, *, notifies: bool) -> None:
        """Run the hook of a running job that is marked; send a message too if its options ask for it."""
        facts = _facts(running, State.RUNNING, mark.text)
        self._run_hook("on-mark", {**facts, "STOKER_MARK": mark.kind.value})
        if notifies:
            self._notify(facts, mark.kind.value)

    def close(self) -> None:
        """Kill the hooks that still run."""
        for task in self._tasks:
            task.cancel()

    def _run_hook(self, name: str, facts: Mapping[str, str]) -> None:
        command = self._config.text(name)
        if command != "none":
            self._begin(name, ["/bin/sh", "-c", command], facts, b"")

    def _notify(self, facts: Mapping[str, str], state: str) -> None:
        url = self._config.text("notify")
        if url != "none":
            message = json.dumps({"url": url, "title": _title(facts, state), "body": _body(facts)})
            self._begin("notify", module_command("stoker.notify"), {}, message.encode())

    def _begin(self, name: str, argv: list[str], facts: Mapping[str, str], data: bytes) -> None:
        if len(self._tasks) >= _MAX_WAITING:
            self._complain(name, "is too slow: for some jobs it was not run")
            return
        task = asyncio.get_running_loop().create_task(self._run(name, argv, facts, data))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, name: str, argv: list[str], facts: Mapping[str, str], data: bytes) -> None:
        async with self._few:
            try:
                child = await run_child(
                    argv, data, facts, _TIMEOUT_S, stdout=asyncio.subprocess.DEVNULL
                )
            except TimeoutError:
                self._complain(name, f"took longer than {_TIMEOUT_S:g}s and was killed")
                return
            except OSError as error:
                self._complain(name, f"cannot be run: {error.strerror}")
                return
        if child.code:
            more = f": {child.last_error}" if child.last_error else ""
            self._complain(name, f"failed with exit {child.code}{more}")
        else:
            self._last_complaint.pop(name, None)

    def _complain(self, name: str, what: str) -> None:
        """Publish what is wrong with a hook; the same text only once."""
        if self._last_complaint.get(name) != what:
            self._last_complaint[name] = what
            self._tell(f"{name} {what}")


def _facts(running: RunningAttempt, state: State, reason: str) -> dict[str, str]:
    facts = running.entry.facts
    return {
        "STOKER_JOB_ID": str(running.attempt.job),
        "STOKER_ATTEMPT": str(running.attempt.number),
        "STOKER_STATE": state.value,
        "STOKER_REASON": reason,
        "STOKER_NAME": (facts.name if facts else None) or "",
        "STOKER_PROJECT": (facts.request.project if facts else None) or "",
        "STOKER_LOG": running.log or "",
    }


def _title(facts: Mapping[str, str], state: str) -> str:
    name = f" ({facts['STOKER_NAME']})" if facts["STOKER_NAME"] else ""
    return f"Stoker: job {facts['STOKER_JOB_ID']}{name} is {state}"


def _body(facts: Mapping[str, str]) -> str:
    return facts["STOKER_REASON"] or "It ended with exit 0."
