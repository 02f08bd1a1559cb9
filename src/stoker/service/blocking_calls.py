"""Calls that may block for long, such as those to a file server, in threads of their own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def call_in_thread(function: Callable[..., T], *details: Any) -> T:
    """Call a function in a daemon thread, which does not keep the process alive if it never returns."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(value: T | None, error: BaseException | None) -> None:
        if future.done():
            return  # the caller has given up
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, error = None, None
        try:
            value = function(*details)
        except BaseException as caught:
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(deliver, value, error)

    threading.Thread(target=run, daemon=True).start()
    return await future
