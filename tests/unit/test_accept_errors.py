from __future__ import annotations

import asyncio
from typing import Any

from stoker.daemon.accept_errors import AcceptErrors


def test_a_lack_of_descriptors_is_logged_once_a_minute() -> None:
    now, told, others = [0.0], [], []  # type: ignore[var-annotated]
    loop = asyncio.new_event_loop()
    loop.default_exception_handler = others.append  # type: ignore[method-assign, assignment]
    handle = AcceptErrors(told.append, lambda: now[0])
    context: dict[str, Any] = {"message": "socket.accept() out of system resource"}
    for second in range(121):
        now[0] = float(second)
        handle(loop, {**context, "exception": OSError(24, "Too many open files")})
    handle(loop, {"message": "something else"})
    loop.close()
    assert len(told) == 3
    assert told[0].startswith("cannot accept a connection: [Errno 24] Too many open files; trying")
    assert others == [{"message": "something else"}]
