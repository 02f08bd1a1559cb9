"""Cost of a decision, an explanation and a change of order in a long queue."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import TYPE_CHECKING, Any

from benchmarks.arena import say
from benchmarks.measure import spread
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.arena import Arena
    from stoker.engine.context import QueueContext
    from stoker.testing.executor import FakeExecutor

WAITING = 1_000_000
QUICK_WAITING = 100_000
BLOCKED = 1000
PROJECTS = 5
LIMIT = 2
REORDERED = 100_000
SLOTS = 4
STARTS_PER_ROUND = 500
QUESTIONS = 50
MOVES = 60
_SLICE = 500


def run(arena: Arena) -> Result:
    """Fill queues in this process, over an executor without processes, and steer them."""
    waiting = QUICK_WAITING if arena.quick else WAITING
    with arena.home() as env:
        home = os.path.join(env["STOKER_HOME"], "steering")
        os.makedirs(home)
        found = asyncio.run(_measure(arena, home, waiting))
    starts, whys, moves, crowded = (spread(values) for values in found)
    return Result(
        name="steering",
        what=f"{waiting} jobs in {PROJECTS} projects with a limit of {LIMIT} each and without one,"
        f" {BLOCKED} of them blocked by others, on {SLOTS} slots: the queue's head through pauses and"
        f" limits, and the plan, {arena.rounds} rounds of {STARTS_PER_ROUND} starts; `why` of"
        f" {QUESTIONS} of them; `move` in a queue of {REORDERED} jobs, on disk when it returns.",
        details=Table(
            ("what", "median (quartiles)"),
            [
                ["plan, µs per start", f"{starts.median:.1f} ({starts.q1:.1f} – {starts.q3:.1f})"],
                ["why, ms", f"{whys.median:.2f} ({whys.q1:.2f} – {whys.q3:.2f})"],
                ["move anywhere, ms", f"{moves.median:.2f} ({moves.q1:.2f} – {moves.q3:.2f})"],
                [
                    "move to the same place again and again, ms",
                    f"{crowded.median:.2f} ({crowded.q1:.2f} – {crowded.q3:.2f})",
                ],
            ],
        ),
        figures=[
            Figure(
                name=f"planner per start, {waiting} queued, {BLOCKED} blocked, {PROJECTS} limits",
                spread=starts,
                target=Target(Bound.AT_MOST, 100.0),
                unit="µs",
                digits=1,
            ),
            Figure(
                name=f"why, {waiting} queued",
                spread=whys,
                target=Target(Bound.AT_MOST, 20.0),
                unit="ms",
                digits=2,
            ),
            Figure(
                name=f"move, {REORDERED} queued",
                spread=spread([moves.q3, crowded.q3]),
                target=Target(Bound.AT_MOST, 50.0),
                unit="ms",
                digits=2,
            ),
        ],
    )


async def _measure(arena: Arena, home: str, waiting: int) -> tuple[list[float], ...]:
    say(f"  {waiting} jobs are added")
    context, executor = _open(home, "long.db")
    _fill(context, waiting)
    for number in range(PROJECTS):
        context.config.change(f"limit.p{number}", str(LIMIT))
    context.admission.limits = context.config.limits()
    starts = [_round_us(context, executor) for _ in range(arena.rounds)]
    whys = _whys_ms(context)
    _close(context, executor)
    say(f"  {REORDERED} jobs are added")
    context, executor = _open(home, "short.db")
    _fill(context, REORDERED)
    moves = _moves_ms(context, lambda rng: rng.randint(1, REORDERED))
    crowded = _moves_ms(context, lambda _rng: 2)
    _close(context, executor)
    return starts, whys, moves, crowded


def _open(home: str, name: str) -> tuple[QueueContext, FakeExecutor]:
    from stoker.core.slot import Slot
    from stoker.engine.attempt_starts import LaunchSpec
    from stoker.engine.config import Config
    from stoker.service.queue_builder import QueueSources, assemble
    from stoker.store.database import Database
    from stoker.testing.executor import FakeExecutor

    database = Database(os.path.join(home, name))
    executor = FakeExecutor(time.monotonic, persistent=True)
    sources = QueueSources(
        home=home,
        database=database,
        config=Config(database),
        executor=executor,
        slots=tuple(Slot(n, (str(n),), (f"GPU-{n}",)) for n in range(SLOTS)),
        clock=time.monotonic,
        prepare=lambda _attempt, _entry: LaunchSpec(["true"]),
    )
    context = assemble(sources)
    return context, executor


def _close(context: QueueContext, executor: FakeExecutor) -> None:
    context.driver.stop()
    context.driver.stopped.cancel()
    executor.close()
    context.database.close()


def _fill(context: QueueContext, count: int) -> None:
    """Add jobs of several projects and of none, and let some wait for the first."""
    from stoker.core.job import Request
    from stoker.store.submissions import Common, NewRow

    common = Common(
        request_id="the-one-request",
        jobs=count,
        submitted_at_us=0,
        environment=b"",
        cwd=b"/",
    )
    rows = [NewRow(b"true")] * _SLICE
    with context.database.transaction():
        reservation = context.jobs.reserve(common)
    for offset in range(0, count, _SLICE):
        project = offset // _SLICE % (PROJECTS + 1)
        request = Request(project=f"p{project}" if project < PROJECTS else None)
        with context.database.transaction():
            context.jobs.fill(reservation, offset, rows, request)
    with context.database.transaction():
        for job in range(count // 2, count // 2 + BLOCKED):
            context.pending.link(job, count, False)
            context.pending.settle(job, 0)


class _Timed:
    """A function, and how long all its calls took."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.spent_s = 0.0

    def __call__(self, *args: Any, **rest: Any) -> Any:
        began = time.perf_counter()
        try:
            return self._function(*args, **rest)
        finally:
            self.spent_s += time.perf_counter() - began


def _round_us(context: QueueContext, executor: FakeExecutor) -> float:
    """Return the microseconds per start of looking at the queue and planning; nothing else."""
    engine = context.engine
    peek, policy = _Timed(engine.queue.peek), _Timed(engine.planner.policy)
    vars(engine.queue)["peek"] = peek
    engine.planner.policy = policy
    before = len(executor.launched)
    while len(executor.launched) - before < STARTS_PER_ROUND:
        engine.turn()
        for key in executor.running[:1]:
            time.sleep(0.0001)
            executor.end(key)
    del vars(engine.queue)["peek"]
    engine.planner.policy = policy._function
    return (peek.spent_s + policy.spent_s) / (len(executor.launched) - before) * 1e6


def _whys_ms(context: QueueContext) -> list[float]:
    from stoker.service.why import why
    from stoker.wire import JobQuery

    rng = random.Random(0)
    last = context.database.execute("SELECT max(id) FROM job").fetchone()[0]
    costs = []
    for _ in range(QUESTIONS):
        job = JobQuery(str(rng.randint(1, last)))
        began = time.perf_counter()
        why(context, job)
        costs.append((time.perf_counter() - began) * 1e3)
    return costs


def _moves_ms(context: QueueContext, position: Callable[[random.Random], int]) -> list[float]:
    from stoker.service.move import move
    from stoker.wire import Move

    rng = random.Random(0)
    costs: list[float] = []
    while len(costs) < MOVES:
        job = rng.randint(1, REORDERED // 2 - 1)
        order = Move(job=str(job), position=position(rng))
        began = time.perf_counter()
        move(context, order)
        costs.append((time.perf_counter() - began) * 1e3)
    return costs
