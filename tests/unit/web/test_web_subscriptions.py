"""Answers that tabs watch are computed again when they can have changed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from stoker.api.endpoint import Endpoint
from stoker.engine.context import QueueContext
from stoker.web.subscriptions import Subscriptions


class QuietEvents:
    """Events of a queue in which nothing happens."""

    def __init__(self) -> None:
        self.version = 1
        self.awaited = asyncio.Event()

    async def changed_since(self, _version: int) -> None:
        """Never return."""
        self.awaited.set()
        await asyncio.Event().wait()


def test_an_answer_that_changes_by_itself_is_polled_also_if_it_is_watched_last() -> None:
    async def watch_both() -> list[bytes]:
        events = QuietEvents()
        driver = SimpleNamespace(poke=lambda: None)
        context = cast("QueueContext", SimpleNamespace(events=events, viewers=0, driver=driver))
        polled: list[None] = []

        def poll(_context: QueueContext) -> int:
            polled.append(None)
            return len(polled)

        endpoints = (
            Endpoint("GET", "/still", lambda _context: 0, int),
            Endpoint("GET", "/polled", poll, int, period_s=0.01),
        )
        subscriptions = Subscriptions(context, endpoints)
        await subscriptions.watch("tab", 1, "/still", "", lambda _body, _is_refused: None)
        await (
            events.awaited.wait()
        )  # nothing that is watched changes by itself: only an event wakes it

        answers: list[bytes] = []
        is_third = asyncio.Event()

        def take(body: bytes, _is_refused: bool) -> None:
            answers.append(body)
            if len(answers) == 3:
                is_third.set()

        await subscriptions.watch("tab", 2, "/polled", "", take)
        await asyncio.wait_for(is_third.wait(), 60)
        subscriptions.forget("tab")
        return answers[:3]

    assert asyncio.run(watch_both()) == [b"1", b"2", b"3"]
