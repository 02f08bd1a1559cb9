"""What is asked of an agent, and how it is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

LEAVING, LEFT = "leaving", "left"


class AgentLike(Protocol):
    """An agent on a node, whose answers take their time, or never come."""

    def beat(
        self, echo: float | None, lease_s: float, wanted: bool
    ) -> Awaitable[tuple[float, float, bytes, str]]:
        """Renew the lease; answered with a stamp, the time, what is seen, and LEAVING, LEFT or nothing."""

    def open(self, conversation: str) -> Awaitable[None]:
        """Begin a conversation with the supervisor."""

    def write(self, conversation: str, data: bytes) -> Awaitable[bool]:
        """Pass on what the daemon says."""

    def read(self, conversation: str) -> Awaitable[Any]:
        """Ask for what has come."""

    def close(self, conversation: str) -> Awaitable[None]:
        """End a conversation."""

    def node_cache(self, verb: str, *words: Any) -> Awaitable[tuple[bool, Any]]:
        """Have the node cache of trees do something."""


class AgentLostError(Exception):
    """An agent cannot be reached, or is no more."""


class NodeLeftError(Exception):
    """A node has taken its leave."""


async def patiently(ask: Callable[[], Awaitable[Any]], patience_s: float | None) -> Any:
    """An agent's answer; whatever keeps it from coming is one error. None is patience without end."""
    try:
        return await asyncio.wait_for(_answer(ask), patience_s)
    except asyncio.TimeoutError:
        raise AgentLostError("no answer") from None
    except Exception as error:  # Ray has many, and not all of them are of its own class
        raise AgentLostError(str(error).partition("\n")[0] or repr(error)) from error


async def _answer(ask: Callable[[], Awaitable[Any]]) -> Any:
    return await ask()
