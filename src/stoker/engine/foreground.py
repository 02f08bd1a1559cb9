"""An engine that lives and dies with its process: what `stoker run` and its kin are made of."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from types import FrameType

import msgspec

from stoker.core.job import Attempt, Request
from stoker.core.slot import Slot
from stoker.engine.events import Listener
from stoker.engine.lines import Source
from stoker.engine.loop import Engine, Rules
from stoker.engine.queue import LineQueue
from stoker.engine.recover import recover
from stoker.executors.command import MAX_ARGUMENT_BYTES, CommandLine
from stoker.executors.contract import ExecutorLostError
from stoker.executors.local import LocalExecutor
from stoker.store.runs import Run


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a foreground run is to be done."""

    slots: tuple[Slot, ...]
    shell: str
    env: Mapping[str, str]
    cwd: str
    request: Request
    log_of: Callable[[Attempt], str | None]
    fail_fast: bool = False
    resume: bool = False


class Foreground:
    """Runs a source's commands to their end, in this process and a shepherd that dies with it."""

    def __init__(self, run: Run, source: Source, settings: Settings, listener: Listener) -> None:
        self._run = run
        self._source = source
        self._listener = listener
        self._shell = settings.shell
        self._interrupts = 0
        self._executor = LocalExecutor(
            name=f"stoker-run-{run.name}",
            journal=run.journal,
            env=settings.env,
            cwd=settings.cwd,
            shell=settings.shell,
        )
        if settings.resume:
            recover(run.jobs, run.journal)
        self._command_line = CommandLine(settings.shell, settings.env.get("PATH", os.defpath))
        run.database.on_full = self._wait_for_space
        self.engine = Engine(
            slots=settings.slots,
            queue=LineQueue(source, run.jobs, settings.request, resume=settings.resume),
            executor=self._executor,
            database=run.database,
            jobs=run.jobs,
            listener=listener,
            rules=Rules(
                request=settings.request,
                fail_fast=settings.fail_fast,
                in_advance=not settings.fail_fast,
            ),
            words_of=self._words_of,
            log_of=settings.log_of,
            clock=boot_clock_s,
        )

    def run(self, refresh_s: float | None = None, refresh: Callable[[], None] | None = None) -> None:
        """Go on until all is done; first SIGINT or SIGTERM drains, the second kills all trees."""
        with self._signals() as wake:
            self._loop(wake, refresh_s, refresh)
        self._executor.finish()
        self._run.database.commit()

    def _loop(self, wake: int, refresh_s: float | None, refresh: Callable[[], None] | None) -> None:
        engine, source, poll = self.engine, self._source, select.poll()
        poll.register(self._executor, select.POLLIN)
        poll.register(wake, select.POLLIN)
        listening = False
        engine.turn()
        while not engine.is_over():
            wants = not source.always_ready and not source.ended and not len(source)
            if wants and not listening:
                poll.register(source.fd, select.POLLIN)
            elif listening and not wants:
                poll.unregister(source.fd)
            listening = wants
            for fd, _event in poll.poll(_milliseconds(engine.patience_s(), refresh_s)):
                if fd == wake:
                    os.read(wake, 64)
                elif fd == source.fd and listening:
                    source.read_some()
            try:
                engine.turn()
            except ExecutorLostError:
                self._executor.end_orphans()
                raise
            if refresh is not None:
                refresh()

    @contextlib.contextmanager
    def _signals(self):  # type: ignore[no-untyped-def]
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        old_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        old = {s: signal.signal(s, self._on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield reader
        finally:
            for signum, handler in old.items():
                signal.signal(signum, handler)
            signal.set_wakeup_fd(old_fd)
            os.close(reader)
            os.close(writer)

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._interrupts == 1:
            count = len(self.engine.board.running)
            self._listener.on_notice(
                f"{signal.Signals(signum).name}: starting no more, {count} still running;"
                " once more to kill them"
            )
            self.engine.drain()
        else:
            self.engine.kill_all("interrupted")

    def _words_of(self, attempt: Attempt, command: bytes) -> list[str]:
        if len(command) < MAX_ARGUMENT_BYTES:
            return self._command_line.words(command)
        script = self._run.path("scripts", f"{attempt.key}.sh")
        with open(script, "wb") as file:
            file.write(command + b"\n")
        return [self._shell, script]

    def _wait_for_space(self, message: str) -> None:
        self._listener.on_notice(f"{message}; waiting for space")
        time.sleep(1.0)


def boot_clock_s() -> float:
    """Seconds since boot, sleep included: the clock that time limits go by."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _milliseconds(*limits_s: float | None) -> int | None:
    known = [limit for limit in limits_s if limit is not None]
    return int(min(known) * 1000) + 1 if known else None
