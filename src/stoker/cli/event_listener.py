"""A thread that tells a live view of the terminal that something in the queue has changed."""

from __future__ import annotations

import contextlib
import threading

from stoker.client.client import Client
from stoker.errors import StokerError

_SETTLED_S = 1.0


class EventListener(threading.Thread):
    """Sets `changed` after each event of the queue, and when the daemon has gone."""

    def __init__(self) -> None:
        super().__init__(name="events", daemon=True)
        self.changed = threading.Event()
        self.is_over = False

    def run(self) -> None:
        """Read events until the daemon goes."""
        with contextlib.suppress(StokerError), Client() as client:
            # An event before this connection may have been missed.
            timer = threading.Timer(_SETTLED_S, self.changed.set)
            timer.daemon = True
            timer.start()
            for _event in client.events():
                self.changed.set()
        self.is_over = True
        self.changed.set()
