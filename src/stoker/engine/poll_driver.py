"""Turns an engine whenever something happens, and sees to it that none of its trees outlives it."""

from __future__ import annotations

import gc
import select
import time
from collections.abc import Callable

from stoker.engine.engine import Engine
from stoker.executors.foreground_executor import ForegroundExecutor
from stoker.supervisor.journal import read_journals

_LONGEST_WAIT_S = 86400.0  # poll counts milliseconds in 32 bits


def _nothing() -> None:
    """Do nothing."""


class PollDriver:
    """The loop of a process that hosts an engine: waits for descriptors, calls back, turns.

    `before_wait` is called before each wait and `after_wait` after it, when callbacks have been made.
    """

    def __init__(
        self,
        engine: Engine,
        executor: ForegroundExecutor,
        journal: str,
        *,
        before_wait: Callable[[], None] = _nothing,
        after_wait: Callable[[], None] = _nothing,
        when_over: Callable[[], None] = _nothing,
    ) -> None:
        self._engine = engine
        self._executor = executor
        self._journal = journal
        self._before_wait = before_wait
        self._after_wait = after_wait
        self._when_over = when_over
        self._poll = select.poll()
        self._callbacks: dict[int, Callable[[], None]] = {}

    def __contains__(self, fd: int) -> bool:
        return fd in self._callbacks

    def listen(self, fd: int, callback: Callable[[], None], events: int = select.POLLIN) -> None:
        """Call back whenever a descriptor is ready, by default to be read."""
        self._callbacks[fd] = callback
        self._poll.register(fd, events)

    def unlisten(self, fd: int) -> None:
        """Forget a descriptor."""
        del self._callbacks[fd]
        self._poll.unregister(fd)

    def turn_until_over(self, refresh: Callable[[], float | None]) -> None:
        """Go on until nothing runs and nothing will, and what the jobs left behind is gone.

        `refresh` is called after each turn and says in how many seconds at the latest it wants to
        be called again. Whatever ends this early ends all trees, and what is known of them is on
        record.
        """
        # What was made so far stays to the end: the collector need not look at it again and again.
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
    """Seconds since boot, sleep included: the clock that time limits go by."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _milliseconds(*limits_s: float | None) -> int | None:
    known = [min(limit, _LONGEST_WAIT_S) for limit in limits_s if limit is not None]
    return int(min(known) * 1000) + 1 if known else None
