"""Minimal daemon in Python, as a lower bound: `python echo.py SOCKET` always sends the same answer."""

from __future__ import annotations

import asyncio
import sys

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class Echo(asyncio.Protocol):
    """Takes every piece for a whole request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember whom to answer."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, _data: bytes) -> None:
        """Answer."""
        self._transport.write(ANSWER)


async def main(path: str) -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_unix_server(Echo, path)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
