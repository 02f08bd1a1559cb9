"""Tells whoever listens what happens to jobs and slots; belongs to one event loop, as its context does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from stoker.wire import JobEvent, LaggedEvent, StreamEvent

CAPACITY = 1000


class Broadcast:
    """Publishing costs next to nothing while nobody listens, and never waits for a listener."""

    def __init__(self) -> None:
        self.version = 0
        self._listeners: set[BroadcastListener] = set()
        self._awaiting: set[asyncio.Future[None]] = set()
        self._awaiting_job: dict[int, set[asyncio.Future[None]]] = {}
        self._closed = False

    @property
    def is_heard(self) -> bool:
        """Whether anybody would hear what is published now; if not, `touch` will do."""
        return bool(self._listeners or self._awaiting_job)

    def publish(self, event: StreamEvent) -> None:
        """Tell everybody who listens."""
        self.touch()
        for listener in self._listeners:
            listener.take(event)
        if self._awaiting_job and isinstance(event, JobEvent):
            _wake(self._awaiting_job.pop(event.id, ()))

    def touch(self) -> None:
        """Say that something about jobs has changed, without saying what."""
        self.version += 1
        if self._awaiting:
            awaiting, self._awaiting = self._awaiting, set()
            _wake(awaiting)

    def listen(self, capacity: int = CAPACITY) -> BroadcastListener:
        """A listener that hears every event from now on, until it is closed."""
        listener = BroadcastListener(self, capacity)
        if self._closed:
            listener.end()
        else:
            self._listeners.add(listener)
        return listener

    def forget(self, listener: BroadcastListener) -> None:
        """Tell a listener nothing more."""
        self._listeners.discard(listener)

    async def changed_since(self, version: int) -> None:
        """Return once `version` is no longer the newest: at once, or with the next change."""
        if version != self.version:
            return
        future = asyncio.get_running_loop().create_future()
        self._awaiting.add(future)
        try:
            await future
        finally:
            self._awaiting.discard(future)

    def job_change(self, job: int) -> asyncio.Future[None]:
        """A future that is done with this job's next event, however many others have theirs.

        It counts from now, so whoever looks at the job afterwards misses nothing. Cancel it when it
        is no longer wanted.
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
        """End the listeners' iterations: the daemon goes. Nobody is told of a change that was none."""
        self._closed = True
        for listener in self._listeners:
            listener.end()
        self._listeners.clear()


class BroadcastListener:
    """Events one after another; a listener too slow for them is told how many it has missed."""

    def __init__(self, broadcast: Broadcast, capacity: int) -> None:
        self._broadcast = broadcast
        self._capacity = capacity
        self._events: deque[StreamEvent] = deque()
        self._missed = 0
        self._ended = False
        self._sleeping: asyncio.Future[None] | None = None

    def take(self, event: StreamEvent) -> None:
        """Keep an event until it is fetched, or count it as missed."""
        if self._missed or len(self._events) >= self._capacity:
            self._missed += 1
        else:
            self._events.append(event)
        self._wake()

    def end(self) -> None:
        """Let the iteration end when what is kept has been fetched."""
        self._ended = True
        self._wake()

    def close(self) -> None:
        """Hear no more."""
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
