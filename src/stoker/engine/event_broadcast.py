"""Broadcast of job and slot events to listeners in one event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from stoker.wire import JobEvent, LaggedEvent, StreamEvent

CAPACITY = 1000


class Broadcast:
    """Passes events to listeners. Publishing is cheap without listeners, and never waits for one."""

    def __init__(self) -> None:
        self.version = 0
        self._listeners: set[BroadcastListener] = set()
        self._awaiting: set[asyncio.Future[None]] = set()
        self._awaiting_job: dict[int, set[asyncio.Future[None]]] = {}
        self._closed = False

    @property
    def is_heard(self) -> bool:
        """Whether an event would reach a listener; if not, `touch` is enough."""
        return bool(self._listeners or self._awaiting_job)

    def publish(self, event: StreamEvent) -> None:
        """Pass an event to all listeners."""
        self.touch()
        for listener in self._listeners:
            listener.take(event)
        if self._awaiting_job and isinstance(event, JobEvent):
            _wake(self._awaiting_job.pop(event.id, ()))

    def touch(self) -> None:
        """Announce a change without an event."""
        self.version += 1
        if self._awaiting:
            awaiting, self._awaiting = self._awaiting, set()
            _wake(awaiting)

    def listen(self, capacity: int = CAPACITY) -> BroadcastListener:
        """Make a listener that gets every event from now on, until it is closed."""
        listener = BroadcastListener(self, capacity)
        if self._closed:
            listener.end()
        else:
            self._listeners.add(listener)
        return listener

    def forget(self, listener: BroadcastListener) -> None:
        """Remove a listener."""
        self._listeners.discard(listener)

    async def changed_since(self, version: int) -> None:
        """Wait until there is a newer version than `version`."""
        if version != self.version:
            return
        future = asyncio.get_running_loop().create_future()
        self._awaiting.add(future)
        try:
            await future
        finally:
            self._awaiting.discard(future)

    def job_change(self, job: int) -> asyncio.Future[None]:
        """A future that is done with the next event of this job.

        Get it before reading the job: then no change is missed. Cancel it if it is not needed.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaiting_job.setdefault(job, set()).add(future)
        future.add_done_callback(lambda done: self._forget_future(job, done))
        return future

    def _forget_future(self, job: int, future: asyncio.Future[None]) -> None:
        awaiting = self._awaiting_job.get(job)
        if awaiting is not None:
            awaiting.discard(future)
            if not awaiting:
                del self._awaiting_job[job]

    def close(self) -> None:
        """End the iterations of all listeners, because the daemon stops."""
        self._closed = True
        for listener in self._listeners:
            listener.end()
        self._listeners.clear()


class BroadcastListener:
    """Iterator over events. A listener that is too slow gets the number of missed events."""

    def __init__(self, broadcast: Broadcast, capacity: int) -> None:
        self._broadcast = broadcast
        self._capacity = capacity
        self._events: deque[StreamEvent] = deque()
        self._missed = 0
        self._ended = False
        self._sleeping: asyncio.Future[None] | None = None

    def take(self, event: StreamEvent) -> None:
        """Keep an event until it is read, or count it as missed."""
        if self._missed or len(self._events) >= self._capacity:
            self._missed += 1
        else:
            self._events.append(event)
        self._wake()

    def end(self) -> None:
        """End the iteration after the events that are kept."""
        self._ended = True
        self._wake()

    def close(self) -> None:
        """Get no more events."""
        self._broadcast.forget(self)

    def __aiter__(self) -> AsyncIterator[list[StreamEvent]]:
        return self

    async def __anext__(self) -> list[StreamEvent]:
        """All events since the last time, at least one."""
        while not self._events and not self._missed:
            if self._ended:
                raise StopAsyncIteration
            self._sleeping = asyncio.get_running_loop().create_future()
            await self._sleeping
        events = list(self._events)
        self._events.clear()
        if self._missed:
            events.append(LaggedEvent(missed=self._missed))
            self._missed = 0
        return events

    def _wake(self) -> None:
        if self._sleeping is not None and not self._sleeping.done():
            self._sleeping.set_result(None)


def _wake(futures: set[asyncio.Future[None]] | tuple[()]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
