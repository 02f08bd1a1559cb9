"""Streaming answers, which end when the client disconnects or the source ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping

from stoker.api.asgi import Receive, Scope, Send
from stoker.errors import StokerError

Chunks = AsyncGenerator[bytes, None]


class Stream:
    """Sends chunks as they come, each when there is room for it.

    A client that disconnects ends the source at once, even while the source waits for data. A source that
    fails cuts the stream off, so that the client knows that it is incomplete.
    """

    def __init__(
        self, chunks: Chunks, media: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self._chunks = chunks
        self._headers = {"content-type": media, **(headers or {})}

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send all chunks."""
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_hung_up(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not sending.done():
                sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, StokerError):
                await sending
            await self._chunks.aclose()

    async def _send(self, send: Send) -> None:
        headers = [(name.encode(), value.encode()) for name, value in self._headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for chunk in self._chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
