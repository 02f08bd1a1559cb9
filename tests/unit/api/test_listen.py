from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoker.client.client import Client
    from unit.api.desk import Desk


def test_hundreds_may_come_while_the_daemon_is_busy(desk: Desk, client: Client) -> None:
    client.status()  # it listens
    done = threading.Event()
    desk.loop.call_soon_threadsafe(done.wait, 10)
    with contextlib.ExitStack() as stack:
        stack.callback(done.set)
        for _ in range(300):
            sock = stack.enter_context(socket.socket(socket.AF_UNIX))
            sock.setblocking(False)
            sock.connect(f"{desk.home}/stoker.sock")
