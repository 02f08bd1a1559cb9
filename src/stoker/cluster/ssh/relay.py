"""`python -m stoker.cluster.ssh.relay`: leads connections to the head into the tunnel, on a node.

It runs as the command of the tunnel's ssh. ssh has a socket for each port of the head in a private folder.
This process listens at the head's address on the loopback interface, where Ray looks for the head. It ends
with its standard input, and so with the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys

_BLOCK = 1 << 16


async def relay(folder: str, address: str, ports: range) -> None:
    """Listen at these ports until the standard input ends."""
    servers = [
        await asyncio.start_server(_Lead(os.path.join(folder, str(port))), address, port)
        for port in ports
    ]
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    for server in servers:
        server.close()


class _Lead:
    """Joins each connection with one to a socket of ssh."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_unix_connection(self._path)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_BLOCK):
            writer.write(data)
            await writer.drain()
    writer.close()


def main() -> None:
    """Relay: FOLDER ADDRESS FIRST_PORT LAST_PORT."""
    folder, address, first, last = sys.argv[1:]
    try:
        asyncio.run(relay(folder, address, range(int(first), int(last) + 1)))
    except OSError as error:
        sys.exit(f"cannot listen at {address}: {error.strerror or error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
