"""A complete answer, sent at once."""

from __future__ import annotations

from collections.abc import Mapping

from stoker.api.asgi import Receive, Scope, Send


class Response:
    """Status, headers and body of an answer. As an ASGI app, it sends itself."""

    def __init__(
        self,
        body: bytes = b"",
        status: int = 200,
        *,
        headers: Mapping[str, str] | None = None,
        media: str | None = None,
    ) -> None:
        self.body = body
        self._status = status
        self._headers = dict(headers or {})
        if media is not None:
            self._headers["content-type"] = media
        if status != 204:
            self._headers["content-length"] = str(len(body))

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the answer."""
        headers = [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in self._headers.items()
        ]
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})
