"""Watched answers: each is computed once for all tabs that watch it, and sent when it changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from stoker.api.app import answer_get
from stoker.api.problem import answer_error

if TYPE_CHECKING:
    from stoker.api.endpoint import Endpoint
    from stoker.engine.context import QueueContext

# The page gets at most 1/_SHARE of the daemon's time. A burst sends a rare change at once.
_SHARE = 20
_BURST_S = 0.5
_SHORTEST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 2.0
_LONGEST_SEND_S = 0.001  # a longer one waits for a slow tab, which costs the daemon nothing

Key = tuple[str, str]
Deliver = Callable[[bytes, bool], None]
"""Takes an encoded answer, and whether it is a refusal."""


class View:
    """One answer and the tabs that watch it."""

    def __init__(self, endpoint: Endpoint, query: str) -> None:
        self.endpoint = endpoint
        self.query = query
        self.watchers: dict[tuple[object, int], Deliver] = {}
        self.version = -1
        self.looked_at = 0.0
        self.body = b""
        self.is_refused = False

    async def refresh(self, context: QueueContext) -> bool:
        """Compute the answer again; whether it changed."""
        self.version = context.events.version
        self.looked_at = time.monotonic()
        before = self.body
        try:
            self.body = await answer_get(context, self.endpoint, self.query.encode("ascii"))
            self.is_refused = False
        except Exception as error:
            self.body = answer_error(error).body
            self.is_refused = True
        return self.body != before

    def is_due(self, version: int, now: float) -> bool:
        """Whether the answer can have changed."""
        if self.endpoint.period_s is not None and now - self.looked_at >= self.endpoint.period_s:
            return True
        return self.version != version


class Subscriptions:
    """Sends tabs the answers they watch, again after every change; sleeps while no tab watches."""

    def __init__(self, context: QueueContext, endpoints: tuple[Endpoint, ...]) -> None:
        self._context = context
        self._endpoints = {each.path: each for each in endpoints if each.is_watchable}
        self._views: dict[Key, View] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_other_period = (
            asyncio.Event()
        )  # a view was added that may be due before all others
        self._sent_s = 0.0

    def can_watch(self, path: str) -> bool:
        """Whether the answers of a path can be watched."""
        return path in self._endpoints

    async def watch(
        self, tab: object, number: int, path: str, query: str, deliver: Deliver
    ) -> None:
        """Deliver an answer now and after every change."""
        view = self._views.get((path, query))
        if view is None:
            view = self._views[path, query] = View(self._endpoints[path], query)
            self._count_viewers(view, 1)
        view.watchers[tab, number] = deliver
        if view.is_due(self._context.events.version, time.monotonic()) and await view.refresh(
            self._context
        ):
            self._deliver(view)
        else:
            deliver(view.body, view.is_refused)
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    def forget(self, tab: object, number: int | None = None) -> None:
        """End one watch of a tab, or all of them."""
        for key, view in list(self._views.items()):
            for watcher in [each for each in view.watchers if each[0] is tab]:
                if number is None or watcher[1] == number:
                    del view.watchers[watcher]
            if not view.watchers:
                del self._views[key]
                self._count_viewers(view, -1)
        if not self._views:
            self.close()

    def charge(self, spent_s: float) -> None:
        """Count the time of sending an answer; with many tabs that is most of the time."""
        self._sent_s += min(spent_s, _LONGEST_SEND_S)

    def close(self) -> None:
        """End all watches."""
        for view in self._views.values():
            self._count_viewers(view, -1)
        self._views.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _count_viewers(self, view: View, change: int) -> None:
        """Keep the engine sampling values that change by themselves while a tab shows them."""
        if view.endpoint.period_s is not None:
            self._is_other_period.set()
            self._context.viewers += change
            self._context.driver.poke()

    async def _run(self) -> None:
        events = self._context.events
        owed_s, last = 0.0, time.monotonic()
        while True:
            version, began = events.version, time.monotonic()
            for view in list(self._views.values()):
                if view.watchers and view.is_due(version, began):
                    if await view.refresh(self._context):
                        self._deliver(view)
                    await asyncio.sleep(0)  # other work of the daemon goes first
            spent_s, self._sent_s = self._sent_s + time.monotonic() - began, 0.0
            owed_s = max(0.0, owed_s - (began - last)) + _SHARE * spent_s
            last = began
            pause_s = min(_LONGEST_PAUSE_S, max(_SHORTEST_PAUSE_S, owed_s - _BURST_S))
            await asyncio.sleep(pause_s)
            await self._wait_for_change(version)

    async def _wait_for_change(self, version: int) -> None:
        self._is_other_period.clear()
        periods = [
            view.looked_at + view.endpoint.period_s
            for view in self._views.values()
            if view.endpoint.period_s is not None
        ]
        timeout_s = max(0.0, min(periods) - time.monotonic()) if periods else None
        reasons = (
            asyncio.ensure_future(self._context.events.changed_since(version)),
            asyncio.ensure_future(self._is_other_period.wait()),
        )
        try:
            await asyncio.wait(reasons, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for reason in reasons:
                reason.cancel()

    @staticmethod
    def _deliver(view: View) -> None:
        for deliver in list(view.watchers.values()):
            deliver(view.body, view.is_refused)
