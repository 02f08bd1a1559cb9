"""Client of an agent: sends requests and waits for the replies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from stoker.bridge.agent_messages import AgentRequest, ReplyT, decode_reply, encode

_T = TypeVar("_T")


class AgentLostError(Exception):
    """An agent does not answer, or has ended."""


class AgentClient:
    """Calls one agent. `send` carries an encoded request to the agent and returns the encoded reply."""

    def __init__(self, send: Callable[[bytes], Awaitable[bytes]]) -> None:
        self._send = send

    async def call(self, request: AgentRequest[ReplyT], timeout_s: float | None) -> ReplyT:
        """Return the reply to a request; raise AgentLostError if none comes. None: wait without a limit."""

        async def ask() -> ReplyT:
            return decode_reply(await self._send(encode(request)), request)

        return await wait_for_ray(ask, timeout_s)


async def wait_for_ray(ask: Callable[[], Coroutine[Any, Any, _T]], timeout_s: float | None) -> _T:
    """Return the result of a call of Ray; raise AgentLostError for every failure.

    `asyncio.wait_for` of Python before 3.12 loses a cancellation that comes together with the result.
    """
    call = asyncio.ensure_future(ask())
    try:
        done, _ = await asyncio.wait({call}, timeout=timeout_s)
    finally:
        call.cancel()
    if not done:
        raise AgentLostError("no answer")
    try:
        return call.result()
    except Exception as error:  # Ray raises many, and not all of them are of its own class
        raise AgentLostError(str(error).partition("\n")[0] or repr(error)) from error
