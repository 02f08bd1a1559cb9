"""Lets an engine live in an event loop: a turn for every event and every promise that falls due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stoker.engine.engine import Engine
from stoker.executors.contract import Executor


class AsyncioDriver:
    """Turns the engine when the executor has news, when somebody pokes it, and when time is due."""

    def __init__(
        self, engine: Engine, executor: Executor, before: Callable[[], None] | None = None
    ) -> None:
        self._engine = engine
        self._executor = executor
        self._before = before or _nothing
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._poked = False
        self._fd: int | None = None
        self.stopped: asyncio.Future[None] = self._loop.create_future()

    def start(self) -> None:
        """Begin; from now on the engine is turned by nobody else."""
        self.beat()

    def poke(self) -> None:
        """Turn the engine soon: something was added or changed."""
        if not self._poked:
            self._poked = True
            self._loop.call_soon(self.beat)

    def beat(self) -> None:
        """Turn the engine now; a failure ends the daemon, whose successor recovers."""
        self._poked = False
        if self.stopped.done():
            return
        try:
            self._before()
            self._engine.turn()
            self._listen()
            patience_s = self._engine.patience_s()
        except BaseException as error:
            self.stop()
            self.stopped.set_exception(error)
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if patience_s is not None:
            self._timer = self._loop.call_later(patience_s, self.beat)

    def stop(self) -> None:
        """Turn it no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            self._fd = None

    def _listen(self) -> None:
        # An executor that was replaced may be heard on another descriptor; one that the engine cannot
        # hear for now would ring all the time.
        fd = None if self._engine.recorder.is_held_up else self._executor.fileno()
        if fd != self._fd:
            if self._fd is not None:
                self._loop.remove_reader(self._fd)
            if fd is not None:
                self._loop.add_reader(fd, self.beat)
            self._fd = fd


def _nothing() -> None:
    """Do nothing."""
