"""Answers that keep themselves up to date: each is worked out once for all tabs that watch it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from stoker.api.app import answer_get
from stoker.api.problem import answer_error
from stoker.web.messages import data_frame, problem_frame

if TYPE_CHECKING:
    from stoker.api.endpoint import Endpoint
    from stoker.engine.context import QueueContext

# Of the daemon's time the page gets one part in so many, but for a change now and then, which is told
# at once: jobs come first.
_SHARE = 20
_BURST_S = 0.5
_SHORTEST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 2.0
_LONGEST_SEND_S = 0.001  # one that takes longer waits for a slow tab, and the daemon does not

Key = tuple[str, str]
Deliver = Callable[[str], None]


class View:
    """One answer, and the tabs that want to know when it changes."""

    def __init__(self, endpoint: Endpoint, query: str) -> None:
        self.endpoint = endpoint
        self.query = query
        self.watchers: dict[tuple[object, int], Callable[[int, bytes, bool], None]] = {}
        self.version = -1
        self.looked_at = 0.0
        self.body = b""
        self.is_refused = False

    async def refresh(self, context: QueueContext) -> bool:
        """Ask again; whether the answer is another one now."""
        self.version = context.events.version
        self.looked_at = time.monotonic()
        before = self.body
        try:
            self.body = await answer_get(context, self.endpoint, self.query.encode("ascii"))
            self.is_refused = False
        except Exception as error:
            self.body = bytes(answer_error(error).body)
            self.is_refused = True
        return self.body != before

    def is_due(self, version: int, now: float) -> bool:
        """Whether it may be another one by now."""
        if self.endpoint.period_s is not None and now - self.looked_at >= self.endpoint.period_s:
            return True
        return self.version != version


class Subscriptions:
    """Tells tabs what they watch, and again after every change; asleep while nobody watches."""

    def __init__(self, context: QueueContext, endpoints: tuple[Endpoint, ...]) -> None:
        self._context = context
        self._endpoints = {each.path: each for each in endpoints if each.is_watchable}
        self._views: dict[Key, View] = {}
        self._task: asyncio.Task[None] | None = None
        self._sent_s = 0.0

    def can_watch(self, path: str) -> bool:
        """Whether there is such an answer."""
        return path in self._endpoints

    async def watch(
        self, tab: object, number: int, path: str, query: str, deliver: Deliver
    ) -> None:
        """Deliver an answer now, and whenever it is another one."""
        view = self._views.get((path, query))
        if view is None:
            view = self._views[path, query] = View(self._endpoints[path], query)
            self._mind_viewers(view, 1)
        view.watchers[tab, number] = lambda number, body, is_refused: deliver(
            problem_frame(number, body) if is_refused else data_frame(number, body)
        )
        if view.is_due(self._context.events.version, time.monotonic()) and await view.refresh(
            self._context
        ):
            self._tell(view)
        else:
            view.watchers[tab, number](number, view.body, view.is_refused)
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    def forget(self, tab: object, number: int | None = None) -> None:
        """Tell a tab no more of one thing, or of anything."""
        for key, view in list(self._views.items()):
            for watcher in [each for each in view.watchers if each[0] is tab]:
                if number is None or watcher[1] == number:
                    del view.watchers[watcher]
            if not view.watchers:
                del self._views[key]
                self._mind_viewers(view, -1)
        if not self._views:
            self.close()

    def charge(self, spent_s: float) -> None:
        """Count the time that it took to send an answer: with many tabs that is most of all."""
        self._sent_s += min(spent_s, _LONGEST_SEND_S)

    def close(self) -> None:
        """Stop telling."""
        for view in self._views.values():
            self._mind_viewers(view, -1)
        self._views.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _mind_viewers(self, view: View, change: int) -> None:
        """What changes by itself must be looked at while somebody is shown it, and only then."""
        if view.endpoint.period_s is not None:
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
                        self._tell(view)
                    await asyncio.sleep(0)  # whatever else there is to do goes first
            spent_s, self._sent_s = self._sent_s + time.monotonic() - began, 0.0
            owed_s = max(0.0, owed_s - (began - last)) + _SHARE * spent_s
            last = began
            pause_s = min(_LONGEST_PAUSE_S, max(_SHORTEST_PAUSE_S, owed_s - _BURST_S))
            await asyncio.sleep(pause_s)
            await self._wait_for_change(version)

    async def _wait_for_change(self, version: int) -> None:
        periods = [
            view.looked_at + view.endpoint.period_s
            for view in self._views.values()
            if view.endpoint.period_s is not None
        ]
        timeout_s = max(0.0, min(periods) - time.monotonic()) if periods else None
        change = asyncio.ensure_future(self._context.events.changed_since(version))
        try:
            await asyncio.wait((change,), timeout=timeout_s)
        finally:
            change.cancel()

    @staticmethod
    def _tell(view: View) -> None:
        for (_tab, number), deliver in list(view.watchers.items()):
            deliver(number, view.body, view.is_refused)
