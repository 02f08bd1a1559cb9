"""Streaming of a log, optionally until its attempt ends; wakes up only when there is data."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from stoker.api.inotify import FileWatch, watch_of_loop
from stoker.api.log_tail import CHUNK_BYTES, LogPosition, read_piece, size_of
from stoker.api.stream import Chunks
from stoker.service.blocking_calls import call_in_thread

if TYPE_CHECKING:
    from stoker.engine.event_broadcast import Broadcast
    from stoker.service.log import AttemptLog

# Pauses between two pieces of a growing log: the more followers, the longer, so that two hundred followers
# cost the daemon no more than a few hundred wake-ups per second.
_PAUSE_S = 0.05
_PAUSE_PER_FOLLOWER_S = 0.0025
_LOOK_AGAIN_S = 1.0


async def read_log(log: AttemptLog, offset: int, *, is_local: bool) -> Chunks:
    """Yield what a log contains now."""
    source = _Source(watch_of_loop(), is_local)
    end = await source.size(log.path)
    place = LogPosition(offset)
    while True:
        data, place = await source.read(log.path, place, end)
        if not data:
            return
        yield data


async def follow_log(events: Broadcast, log: AttemptLog, offset: int, *, is_local: bool) -> Chunks:
    """Yield what a log contains and what is added to it, until no more can come."""
    watch = watch_of_loop()
    source = _Source(watch, is_local)
    place = LogPosition(offset)
    with watch.join():
        change = events.job_change(log.id)
        growth, watched = source.change(log.path), place.file
        try:
            while True:
                data, place = await source.read(log.path, place)
                if not data and log.is_over():
                    # Read once more: the job may have written between the read and the check.
                    data, place = await source.read(log.path, place)
                    if not data:
                        return
                if not data:
                    await asyncio.wait((change, growth), return_when=asyncio.FIRST_COMPLETED)
                else:
                    yield data
                    if len(data) < CHUNK_BYTES:
                        await asyncio.sleep(_pause_s(watch.members))
                has_changed = change.done()  # a job that has started has a log now
                if has_changed:
                    change = events.job_change(log.id)
                if has_changed or growth.done() or watched != place.file:
                    growth.cancel()
                    growth, watched = source.change(log.path), place.file
        finally:
            change.cancel()
            growth.cancel()


class _Source:
    """Reads logs without blocking the event loop.

    Logs on the daemon's own disk are read in its thread, one piece per turn of the loop for all readers.
    Other logs, where a file server may hang, are read in another thread and checked every second: what
    another host writes causes no event here.
    """

    def __init__(self, watch: FileWatch, is_local: bool) -> None:
        self._watch = watch
        self._is_local = is_local

    async def size(self, path: str) -> int:
        """Return the size of a log."""
        return size_of(path) if self._is_local else await call_in_thread(size_of, path)

    async def read(
        self, path: str, place: LogPosition, end: int | None = None
    ) -> tuple[bytes, LogPosition]:
        """Return the next piece of a log."""
        if not self._is_local:
            return await call_in_thread(read_piece, path, place, end)
        async with self._watch.turn:
            await asyncio.sleep(0)
            return read_piece(path, place, end)

    def change(self, path: str) -> asyncio.Future[None]:
        """Return a future that is done when the log may have changed."""
        return self._watch.change(path) if self._is_local else self._watch.timer(_LOOK_AGAIN_S)


def _pause_s(followers: int) -> float:
    return max(_PAUSE_S, _PAUSE_PER_FOLLOWER_S * followers)
