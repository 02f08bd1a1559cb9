"""Cost of a start (decision and record) in a cluster of 1,000 nodes with a million waiting jobs."""

from __future__ import annotations

import asyncio
import os
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.arena import say
from benchmarks.measure import spread
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.arena import Arena
    from stoker.core.job import JobClass
    from stoker.core.slot import Slot
    from stoker.engine.context import QueueContext
    from stoker.executors.contract import Launch, Report

NODES = 1000
GPUS = 8
WAITING = 1_000_000
QUICK_WAITING = 100_000
STARTS_PER_ROUND = 500
MOST_ENDS = 8  # jobs that end between one turn and the next, one to this many
MODELS = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA L40S")
_SLICE = 500


@dataclass(frozen=True, slots=True)
class Queue:
    """A million jobs: every how many one wants two GPUs, eight, a kind of GPU, or has a time limit."""

    name: str
    two: int = 0
    eight: int = 0
    model: int = 0
    limited: int = 0


QUEUES = (
    Queue("one GPU each"),
    Queue("every tenth wants two GPUs, every fiftieth a whole node", two=10, eight=50),
    Queue(
        "the same, a third on one kind of GPU, half with a time limit",
        two=10,
        eight=50,
        model=3,
        limited=2,
    ),
)


def run(arena: Arena) -> Result:
    """Let jobs end at random, and time the turns that fill their places again."""
    waiting = QUICK_WAITING if arena.quick else WAITING
    rows, figures = [], []
    for queue in QUEUES:
        say(f"  {queue.name}: {waiting} jobs are added")
        with arena.home() as env:
            home = os.path.join(env["STOKER_HOME"], "cluster")
            os.makedirs(home)
            filling_us, costs_us = asyncio.run(_measure(arena, home, queue, waiting))
        cost = spread(costs_us)
        rows.append(
            [queue.name, f"{cost.median:.0f} ({cost.q1:.0f} – {cost.q3:.0f})", f"{filling_us:.0f}"]
        )
        figures.append(
            Figure(
                name=f"start in a cluster, {queue.name}",
                spread=cost,
                target=Target(Bound.AT_MOST, 1000.0),
                unit="µs",
                digits=0,
            )
        )
    return Result(
        name="cluster_planner",
        what=f"{NODES} nodes with {GPUS} GPUs each and {waiting} jobs waiting in SQLite: the loop's"
        f" whole turn (reports, plan, record, orders; no network) for each start, {arena.rounds} rounds"
        f" of {STARTS_PER_ROUND} starts while jobs end at random; and the same while the empty cluster"
        " is filled.",
        details=Table(("queue", "µs per start (quartiles)", "µs per start, filling it"), rows),
        figures=figures,
    )


async def _measure(
    arena: Arena, home: str, queue: Queue, waiting: int
) -> tuple[float, list[float]]:
    executor = Willing()
    context = _open(home, executor)
    _fill(context, queue, waiting)
    rng = random.Random(0)
    filling_us = _fill_cluster(context, executor)
    _round_us(context, executor, rng)  # until what is free is spread as it will be
    costs = [_round_us(context, executor, rng) for _ in range(arena.rounds)]
    context.driver.stop()
    context.driver.stopped.cancel()
    executor.close()
    context.database.close()
    return filling_us, costs


def _fill_cluster(context: QueueContext, executor: Willing) -> float:
    """Return the microseconds per start until no place is free any more."""
    began = time.perf_counter()
    started = -1
    while len(executor.running) > started:
        started = len(executor.running)
        for _ in range(3):  # leases are requested, reported, and used
            context.engine.turn()
    return (time.perf_counter() - began) / started * 1e6


def _round_us(context: QueueContext, executor: Willing, rng: random.Random) -> float:
    """Return the microseconds per start; turns that start nothing count too."""
    starts, spent_s = 0, 0.0
    while starts < STARTS_PER_ROUND:
        for key in rng.sample(executor.running, rng.randint(1, MOST_ENDS)):
            executor.end(key)
        before = executor.launched
        began = time.perf_counter()
        context.engine.turn()
        context.engine.patience_s()
        spent_s += time.perf_counter() - began
        starts += executor.launched - before
    return spent_s / starts * 1e6


class Willing:
    """An executor that obeys at once and costs almost nothing."""

    takes_ahead = False

    def __init__(self) -> None:
        self.running: list[str] = []
        self.launched = 0
        self._at: dict[str, int] = {}
        self._reports: list[Report] = []
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def end(self, key: str) -> None:
        """Let an attempt succeed, after a minute."""
        from stoker.executors.contract import Ended

        place = self._at.pop(key)
        last = self.running.pop()
        if last != key:
            self.running[place] = last
            self._at[last] = place
        self._reports.append(Ended(key, 0, time.time_ns() // 1000 + 60_000_000, 0, 0))

    def hold(self, slot: int, *, gather: bool = False) -> None:  # noqa: ARG002 - as an executor has it
        """Lease a slot."""
        from stoker.executors.contract import Held

        self._reports.append(Held(slot))

    def launch(self, launches: Sequence[Launch]) -> None:
        """Start attempts."""
        from stoker.executors.contract import Started

        for launch in launches:
            self.launched += 1
            self._at[launch.key] = len(self.running)
            self.running.append(launch.key)
            at_us = time.time_ns() // 1000
            self._reports.append(Started(launch.key, self.launched, at_us, time.monotonic()))

    def observe(self) -> list[Report]:
        """Tell what has happened since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def fileno(self) -> int:
        """Return a descriptor that is never readable: the benchmark calls the turns itself."""
        return self._reader

    def close(self) -> None:
        """Let go of the descriptors."""
        os.close(self._reader)
        os.close(self._writer)

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_args, **_more: None


def _slots() -> tuple[Slot, ...]:
    from stoker.core.slot import Slot

    return tuple(
        Slot(node * GPUS + gpu, (str(gpu),), (f"n{node}/GPU-{gpu}",), f"n{node}")
        for node in range(NODES)
        for gpu in range(GPUS)
    )


def _open(home: str, executor: Willing) -> QueueContext:
    from stoker.core.node import NodeFacts
    from stoker.engine.attempt_starts import LaunchSpec
    from stoker.engine.config import Config
    from stoker.service.queue_builder import QueueSources, assemble
    from stoker.store.database import Database

    slots = _slots()
    database = Database(os.path.join(home, "cluster.db"))
    sources = QueueSources(
        home=home,
        database=database,
        config=Config(database),
        executor=executor,
        slots=slots,
        head="n0",
        nodes=[NodeFacts(f"n{node}") for node in range(NODES)],
        clock=time.monotonic,
        prepare=lambda _attempt, _entry: LaunchSpec(["true"]),
    )
    context = assemble(sources)
    context.engine.slot_table.update_models(
        {key: MODELS[slot.index // GPUS % len(MODELS)] for slot in slots for key in slot.keys}
    )
    return context


def _fill(context: QueueContext, queue: Queue, count: int) -> None:
    """Add jobs, and have each be of the class that its number says."""
    from stoker.core.job import Request
    from stoker.store.submissions import Common, NewRow

    common = Common(
        request_id="the-one-request", jobs=count, submitted_at_us=0, environment=b"", cwd=b"/"
    )
    rows = [NewRow(b"true")] * _SLICE
    with context.database.transaction():
        reservation = context.jobs.reserve(common)
    for offset in range(0, count, _SLICE):
        with context.database.transaction():
            context.jobs.fill(reservation, offset, rows, Request())
    for remainder, key in _classes(queue).items():
        with context.database.transaction():
            number = context.jobs.class_of(key)
            context.database.write(
                "UPDATE job SET class = ? WHERE id % ? = ?", (number, _PERIOD, remainder)
            )


_PERIOD = 300


def _classes(queue: Queue) -> dict[int, JobClass]:
    """The classes of jobs that are not of the usual one, by the remainder of their number."""
    from stoker.core.job import JobClass
    from stoker.core.placement import PlacementRule, write_where

    found = {}
    for number in range(_PERIOD):
        gpus = 1
        if queue.two and number % queue.two == 0:
            gpus = 2
        if queue.eight and number % queue.eight == 1:
            gpus = 8
        limit = 3600.0 if queue.limited and number % queue.limited == 0 else None
        on = queue.model and number % queue.model == 2
        where = write_where(PlacementRule(on="a100")) if on else None
        if (gpus, limit, where) != (1, None, None):
            found[number] = JobClass(gpus, limit, where=where)
    return found
