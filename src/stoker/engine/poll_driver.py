"""Drives an engine with poll, and kills all process trees if the engine fails."""

from __future__ import annotations

import gc
import select
import time
from collections.abc import Callable

from stoker.engine.engine import Engine
from stoker.executors.foreground_executor import ForegroundExecutor
from stoker.supervisor.journal import read_journals

_LONGEST_WAIT_S = 86400.0  # poll counts milliseconds in 32 bits


class PollDriver:
    """The main loop of a process that hosts an engine: waits for descriptors, calls back, turns.

    Calls `before_wait` before each wait, and `after_wait` after the callbacks of each wait.
    """

    def __init__(
        self,
        engine: Engine,
        executor: ForegroundExecutor,
        journal: str,
        *,
        before_wait: Callable[[], None] = lambda: None,
        after_wait: Callable[[], None] = lambda: None,
        when_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._executor = executor
        self._journal = journal
        self._before_wait = before_wait
        self._after_wait = after_wait
        self._when_over = when_over
        self._poll = select.poll()
        self._callbacks: dict[int, Callable[[], object]] = {}
        if engine.turns is not None:
            self.listen(engine.turns.fileno(), engine.turns.on_change)

    def __contains__(self, fd: int) -> bool:
        return fd in self._callbacks

    def listen(self, fd: int, callback: Callable[[], object], events: int = select.POLLIN) -> None:
        """Call back whenever a descriptor is ready, by default readable."""
        self._callbacks[fd] = callback
        self._poll.register(fd, events)

    def unlisten(self, fd: int) -> None:
        """Stop calling back for a descriptor."""
        del self._callbacks[fd]
        self._poll.unregister(fd)

    def turn_until_over(self, refresh: Callable[[], float | None]) -> None:
        """Run turns until all jobs have ended and the processes that they left are gone.

        Calls `refresh` after each turn; it returns after how many seconds it wants the next call.
        An exception kills all process trees, and records what is known about them.
        """
        # Objects made so far live to the end: the garbage collector can skip them.
        gc.freeze()
        gc.set_threshold(20_000)
        engine = self._engine
        self._poll.register(self._executor, select.POLLIN)
        try:
            self._go_on_until(engine.is_over, refresh)
            self._when_over()
            engine.finish()
            self._go_on_until(lambda: engine.progress.finished, refresh)
        except BaseException:
            self._executor.end_orphans()
            engine.settle(read_journals(self._journal, engine.slot_table.running).records)
            raise
        finally:
            engine.leave_turns()
            self._executor.close()

    def _go_on_until(
        self, reached: Callable[[], bool], refresh: Callable[[], float | None]
    ) -> None:
        self._engine.turn()
        wait_s = refresh()
        while not reached():
            self._before_wait()
            for fd, _event in self._poll.poll(_milliseconds(self._engine.patience_s(), wait_s)):
                if fd in self._callbacks:
                    self._callbacks[fd]()
            self._after_wait()
            self._engine.turn()
            wait_s = refresh()


def boot_clock_s() -> float:
    """Seconds since boot, suspend included: the clock for time limits."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _milliseconds(*limits_s: float | None) -> int | None:
    known = [min(limit, _LONGEST_WAIT_S) for limit in limits_s if limit is not None]
    return int(min(known) * 1000) + 1 if known else None
