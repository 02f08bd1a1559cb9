"""Limits how often the daemon logs that it cannot accept connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

_MESSAGE = "socket.accept() out of system resource"  # asyncio's text
_LOG_EVERY_S = 60.0


class AcceptErrors:
    """Exception handler of an event loop: logs a lack of descriptors once a minute.

    asyncio tries to accept again each second, and logs a traceback each time.
    """

    def __init__(
        self, log: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._clock = clock
        self._logged_at: float | None = None

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an exception of the event loop; log only those of `accept` here."""
        if context.get("message") != _MESSAGE:
            loop.default_exception_handler(context)
            return
        now = self._clock()
        if self._logged_at is None or now - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = now
            self._log(
                f"cannot accept a connection: {context.get('exception')}; trying again each second"
                " (a daemon that is started with a higher hard limit, ulimit -Hn, can have more)"
            )
