"""Drives an engine in an asyncio event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from stoker.engine.engine import Engine
from stoker.executors.contract import Executor


class AsyncioDriver:
    """Runs a turn when the executor has reports, when `poke` asks for one, and when one is due."""

    def __init__(
        self,
        engine: Engine,
        executor: Executor,
        before_turn: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._executor = executor
        self._before_turn = before_turn
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._poked = False
        self._is_over = False
        self._fd: int | None = None
        self.turns = 0
        self.turns_s = 0.0
        self.stopped: asyncio.Future[None] = self._loop.create_future()

    def start(self) -> None:
        """Run the first turn; from now on only this driver turns the engine."""
        self.beat()

    def poke(self) -> None:
        """Run a turn soon: a job or a setting has changed."""
        if not self._poked:
            self._poked = True
            self._loop.call_soon(self.beat)

    def beat(self) -> None:
        """Run a turn now; an exception ends the daemon, and the next daemon recovers."""
        self._poked = False
        if self._is_over:
            return
        began_s = time.perf_counter()
        try:
            self._before_turn()
            self._engine.turn()
            self._listen()
            patience_s = self._engine.patience_s()
        except BaseException as error:
            self.stop()
            self.stopped.set_exception(error)
            return
        self.turns += 1
        self.turns_s += time.perf_counter() - began_s
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if patience_s is not None:
            self._timer = self._loop.call_later(patience_s, self.beat)

    def stop(self) -> None:
        """Run no more turns, not even one that was asked for before."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            self._fd = None

    def _listen(self) -> None:
        # A replaced supervisor has another descriptor. While the engine cannot read reports, the
        # descriptor would stay ready.
        fd = None if self._engine.recorder.is_held_up else self._executor.fileno()
        if fd != self._fd:
            if self._fd is not None:
                self._loop.remove_reader(self._fd)
            if fd is not None:
                self._loop.add_reader(fd, self.beat)
            self._fd = fd
