"""Threads of the bridge that write results and logs of a node's attempts.

A thread cannot be cancelled: it may write a moment longer than the stream lives that started it, or much
longer on a file system that hangs. A node's attempts are given up only when none of these threads runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

_T = TypeVar("_T")


class FileWriters:
    """Runs functions in threads, and knows whether any of them still runs."""

    def __init__(self) -> None:
        self._running: set[asyncio.Future[Any]] = set()

    @property
    def are_idle(self) -> bool:
        """Whether no thread runs."""
        return not self._running

    async def run(
        self, function: Callable[..., _T], *args: object, executor: Executor | None = None
    ) -> _T:
        """Run a function in a thread. If the caller is cancelled, the thread still counts until its end."""
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(executor, partial(function, *args))
        self._running.add(work)
        work.add_done_callback(self._running.discard)
        return await asyncio.shield(work)
