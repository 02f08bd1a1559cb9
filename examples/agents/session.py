"""What an agent does with `stoker mcp`: plan a sweep, submit it, wait for it, pick the best run."""

import asyncio
import os
import sys
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

STOKER = StdioServerParameters(
    command=sys.executable, args=["-m", "stoker", "mcp"], env=dict(os.environ)
)


async def main() -> None:
    """Find the best learning rate."""
    async with stdio_client(STOKER) as streams, ClientSession(*streams) as session:
        await session.initialize()

        async def call(tool: str, **arguments: Any) -> dict[str, Any]:
            answer = await session.call_tool(tool, arguments)
            assert not answer.is_error, answer.content
            assert answer.structured_content is not None
            print(f"{tool}: {answer.structured_content['next']}")
            return answer.structured_content

        plan = await call(
            "plan",
            command="python train.py --lr {lr}",
            parameters=["lr=0.001,0.1,0.3"],
            hours=0.1,
            name="rates",
        )
        added = await call("submit", plan=plan["plan"])
        while not (await call("wait", jobs=added["jobs"], seconds=60))["ended"]:
            pass
        best = await call("best", sweep="rates", metric="loss", goal="minimize")
        print(best["params"])


asyncio.run(main())
