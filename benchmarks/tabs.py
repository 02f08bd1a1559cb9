"""Many open tabs of the web page: `python tabs.py URL TOKEN COUNT`, until stdin closes.

Prints `ready` when every tab has its first answer, and at the end how many answers the slowest received.
"""

from __future__ import annotations

import asyncio
import json
import sys

from websockets.asyncio.client import connect
from websockets.typing import Origin

# What the page of the jobs watches.
WATCHES = (("/v1/status", ""), ("/v1/ls", "limit=50"), ("/v1/gpus", "history=true"))


async def main(url: str, token: str, count: int) -> None:
    """Watch, and throw away what comes."""
    answers = [0] * count
    ready = [asyncio.Event() for _ in range(count)]
    tabs = [asyncio.ensure_future(watch(url, token, answers, ready, each)) for each in range(count)]
    for event in ready:
        await event.wait()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(min(answers), flush=True)
    for tab in tabs:
        tab.cancel()
    await asyncio.gather(*tabs, return_exceptions=True)


async def watch(
    url: str, token: str, answers: list[int], ready: list[asyncio.Event], number: int
) -> None:
    """Be one tab."""
    async with connect(
        f"ws://{url}/v1/live",
        origin=Origin(f"http://{url}"),
        compression=None,
        max_size=None,
    ) as socket:
        await socket.send(json.dumps({"type": "hello", "token": token}))
        for each, (path, query) in enumerate(WATCHES):
            await socket.send(
                json.dumps({"type": "watch", "id": each, "path": path, "query": query})
            )
        async for _message in socket:
            answers[number] += 1
            if answers[number] > len(WATCHES):  # the welcome comes first
                ready[number].set()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
