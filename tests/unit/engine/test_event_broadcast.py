from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from stoker.core.lifecycle import State
from stoker.engine.event_broadcast import Broadcast
from stoker.wire import JobEvent, LaggedEvent


def event(job: int = 1) -> JobEvent:
    return JobEvent(id=job, state=State.DONE, attempt=1, at=0.0)


def run(test: Callable[[Broadcast], Awaitable[Any]]) -> None:
    async def go() -> None:
        await asyncio.wait_for(test(Broadcast()), 10)

    asyncio.run(go())


def test_a_listener_hears_everything_from_now_on_in_order() -> None:
    async def test(broadcast: Broadcast) -> None:
        broadcast.publish(event(1))
        listener = broadcast.listen()
        broadcast.publish(event(2))
        broadcast.publish(event(3))
        assert await anext(listener) == [event(2), event(3)]
        asyncio.get_running_loop().call_soon(broadcast.publish, event(4))
        assert await anext(listener) == [event(4)]

    run(test)


def test_a_slow_listener_is_told_how_much_it_missed_and_keeps_little() -> None:
    async def test(broadcast: Broadcast) -> None:
        listener = broadcast.listen(capacity=3)
        for job in range(10):
            broadcast.publish(event(job))
        assert await anext(listener) == [event(0), event(1), event(2), LaggedEvent(missed=7)]
        broadcast.publish(event(11))
        assert await anext(listener) == [event(11)]

    run(test)


def test_a_closed_listener_hears_nothing_and_costs_nothing() -> None:
    async def test(broadcast: Broadcast) -> None:
        listener = broadcast.listen()
        assert broadcast.is_heard
        listener.close()
        assert not broadcast.is_heard

    run(test)


def test_a_listener_ends_with_the_broadcast_after_what_it_has_kept() -> None:
    async def test(broadcast: Broadcast) -> None:
        listener = broadcast.listen()
        broadcast.publish(event())
        broadcast.close()
        assert [batch async for batch in listener] == [[event()]]
        assert [batch async for batch in broadcast.listen()] == []

    run(test)


def test_a_change_since_a_version_is_never_missed() -> None:
    async def test(broadcast: Broadcast) -> None:
        version = broadcast.version
        broadcast.touch()
        await broadcast.changed_since(version)
        waiting = asyncio.ensure_future(broadcast.changed_since(broadcast.version))
        await asyncio.sleep(0)
        assert not waiting.done()
        broadcast.publish(event())
        await waiting

    run(test)


def test_one_jobs_change_is_told_to_those_who_wait_for_it_alone() -> None:
    async def test(broadcast: Broadcast) -> None:
        one, also_one, two = (broadcast.job_change(job) for job in (1, 1, 2))
        assert broadcast.is_heard
        broadcast.publish(event(1))
        assert one.done()
        assert also_one.done()
        assert not two.done()
        two.cancel()
        await asyncio.sleep(0)
        assert not broadcast.is_heard

    run(test)


def test_whoever_waits_again_at_once_is_not_forgotten_with_the_first_wait() -> None:
    async def test(broadcast: Broadcast) -> None:
        broadcast.job_change(1)
        broadcast.publish(event(1))
        again = broadcast.job_change(1)
        await asyncio.sleep(0)
        broadcast.publish(event(1))
        assert again.done()

    run(test)
