from __future__ import annotations

import asyncio

import pytest

from stoker.bridge.agent_client import AgentLostError, wait_for_ray


def test_a_cancellation_that_comes_with_the_answer_is_not_lost() -> None:
    async def cancel_with_the_answer() -> bool:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def ask() -> str:
            return await answer

        waiting = asyncio.ensure_future(wait_for_ray(ask, 60.0))
        await asyncio.sleep(0)  # the wait begins
        await asyncio.sleep(0)  # the call begins
        answer.set_result("here")
        await asyncio.sleep(0)  # the call ends; the wait has not seen it
        waiting.cancel()
        await asyncio.wait({waiting})
        return waiting.cancelled()

    assert asyncio.run(cancel_with_the_answer())


def test_an_answer_that_does_not_come_in_time_and_a_failure_are_a_lost_agent() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        raise RuntimeError("the actor died\nand more")

    with pytest.raises(AgentLostError, match=r"^no answer$"):
        asyncio.run(wait_for_ray(never, 0.001))
    with pytest.raises(AgentLostError, match=r"^the actor died$"):
        asyncio.run(wait_for_ray(fail, None))
