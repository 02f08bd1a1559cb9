"""A daemon's parts over a fake executor and a fake clock, in an event loop that a test turns by hand."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from stoker.core.invariants import check_slots
from stoker.core.lifecycle import State, is_live
from stoker.core.node import NodeFacts
from stoker.core.slot import Slot
from stoker.engine.adoption import adopt
from stoker.engine.config import Config
from stoker.engine.context import QueueContext
from stoker.engine.engine import Engine
from stoker.engine.gpu_users import Board
from stoker.engine.host_resources import HostCapacity
from stoker.engine.suspend_helper import HelperAnswer, HelperOrder
from stoker.executors.contract import Launch
from stoker.gpus.slot_grammar import parse_slots
from stoker.service.add import add
from stoker.service.config import change_config
from stoker.service.gpus import change_gpus
from stoker.service.hold import hold, release
from stoker.service.kill import kill
from stoker.service.move import move
from stoker.service.pause import pause, resume
from stoker.service.preempt import preempt
from stoker.service.queue_builder import QueueSources, assemble
from stoker.service.retry import retry
from stoker.service.rm import rm
from stoker.service.set import set_
from stoker.service.start import start
from stoker.service.suspend import suspend
from stoker.service.why import why
from stoker.store.database import Database
from stoker.store.queue_jobs import QueueJobs
from stoker.testing.executor import FakeExecutor, run_until_ended
from stoker.wire import (
    Added,
    Changed,
    GpuChange,
    GpuOrder,
    Hold,
    JobQuery,
    Kill,
    Move,
    Moved,
    NewJob,
    NewSetting,
    Pause,
    Preempt,
    Release,
    Remove,
    Resume,
    Retry,
    Set,
    Settings,
    Start,
    Submission,
    Suspend,
)

T = TypeVar("T")
MakeHarness = Callable[..., "Harness"]
FAILED = 1 << 8


def slots(count: int) -> tuple[Slot, ...]:
    """One slot for each of so many GPUs."""
    return tuple(Slot(n, (str(n),), (f"GPU-{n}",)) for n in range(count))


class FakeHelper:
    """Answers orders of suspensions as a test says, at once."""

    def __init__(self) -> None:
        self.orders: list[tuple[str, HelperOrder]] = []
        self.answer = HelperAnswer()

    async def suspend(self, order: HelperOrder) -> HelperAnswer:
        """Note the order."""
        self.orders.append(("suspend", order))
        return self.answer

    async def check(self, order: HelperOrder) -> HelperAnswer:
        """Note the order."""
        self.orders.append(("check", order))
        return self.answer

    async def resume(self, order: HelperOrder) -> HelperAnswer:
        """Note the order."""
        self.orders.append(("resume", order))
        return self.answer


class Harness:
    """Everything from the database to the executor, without a socket and without processes.

    `restart` is what a crash and the next daemon are: all that was not committed is gone, and the
    executor, which lives on, tells what it knows.
    """

    def __init__(
        self,
        home: Path,
        *,
        gpus: int | tuple[Slot, ...] = 2,
        cpu_places: int = 2,
        script: Callable[[Launch], int | None] = run_until_ended,
        nodes: tuple[NodeFacts, ...] = (),
        mps_folder: str | None = None,
        board: Board | None = None,
        capacity: HostCapacity | None = None,
    ) -> None:
        self.home = home
        self.capacity = capacity
        self.now = 1000.0
        self.disk_is_full = False
        self.slots = slots(gpus) if isinstance(gpus, int) else gpus
        self.cpu_places = cpu_places
        self.mps_folder = mps_folder
        self.board = board
        self.nodes = nodes  # the first of them is this machine
        self.helper = FakeHelper()
        self.executor = FakeExecutor(lambda: self.now, script, persistent=True)
        self.loop = asyncio.new_event_loop()
        self._requests = itertools.count(1)
        self.context: QueueContext = None  # type: ignore[assignment]
        self.begin()

    def begin(self) -> None:
        """Be a daemon from now on."""
        self.run(self._begin())

    async def _begin(self) -> None:
        database = Database(str(self.home / "stoker.db"))
        execute = database.execute

        def execute_if_there_is_room(sql: str, *values: Any) -> sqlite3.Cursor:
            if self.disk_is_full and sql == "COMMIT":
                raise sqlite3.OperationalError("database or disk is full")
            return execute(sql, *values)

        database.execute = execute_if_there_is_room
        # Syncing goes by a clock of its own; a test of its own is about that.
        database.sync_due_s = lambda: None  # type: ignore[method-assign]
        config = Config(database)
        sources = QueueSources(
            home=str(self.home),
            database=database,
            config=config,
            executor=self.executor,
            slots=self.slots,
            head=self.nodes[0].name if self.nodes else "",
            nodes=self.nodes,
            capacity=self.capacity,
            clock=lambda: self.now,
            wall_clock=lambda: self.now,
            mps_folder=self.mps_folder,
            board=self.board,
            suspend_helper=self.helper,
            on_node_report=(lambda _report: None) if self.nodes else None,
        )
        self.context = assemble(
            sources,
            supervisor_pids=lambda: [4711],
            parse_slots=lambda text: parse_slots(text, None, None),
            no_gpu_reason=None if self.slots else "no GPU found",
        )
        self.context.engine.slot_table.cpu_places = self.cpu_places
        adopt(self.engine, self.jobs, str(self.home), self.now)

    @property
    def engine(self) -> Engine:
        """The engine of the daemon that lives now."""
        return self.context.engine

    @property
    def database(self) -> Database:
        """The database of the daemon that lives now."""
        return self.context.database

    @property
    def jobs(self) -> QueueJobs:
        """The jobs of the daemon that lives now."""
        return self.context.jobs

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Let a coroutine come to its end."""
        return self.loop.run_until_complete(story)

    def settle(self) -> None:
        """Take turns until there is no more news, or no room to put it on record."""
        for _ in range(200):
            self.engine.turn()
            rests = self.engine.recorder.is_held_up or not self.executor.has_reports
            if rests and self.engine.patience_s() != 0:
                return
        raise AssertionError("the engine and its executor never come to rest")

    def wait(self, seconds: float) -> None:
        """Let time go by."""
        self.now += seconds
        self.settle()

    def end(self, key: str, status: int = 0, **figures: int) -> None:
        """Let an attempt's process end, with figures as `FakeExecutor.end` has them."""
        self.executor.end(key, status, **figures)
        self.settle()

    def run_short_jobs(self, *keys: str) -> None:
        """Let attempts end that lasted next to nothing, so that more are claimed in advance."""
        for key in keys:
            self.now += 0.001
            self.end(key)

    def submission(self, *commands: Any, **common: Any) -> Submission:
        """Jobs that fit into one request, with an id of its own unless one is given."""
        jobs = [
            command if isinstance(command, NewJob) else NewJob(command=command)
            for command in commands
        ]
        given = {"request_id": f"request-{next(self._requests)}", "cwd": str(self.home), **common}
        return Submission(jobs=jobs, **given)

    def add(self, *commands: Any, **common: Any) -> Added:
        """Add jobs, by default one whose command is `train`, and see to what starts at once."""
        added = self.run(add(self.context, self.submission(*(commands or ("train",)), **common)))
        self.settle()
        return added

    def kill(self, ids: str | None = None, **order: Any) -> Changed:
        """End jobs."""
        changed = self.run(kill(self.context, Kill(ids=ids, **order)))
        self.settle()
        return changed

    def rm(self, ids: str | None = None, **order: Any) -> Changed:
        """Forget jobs."""
        changed = self.run(rm(self.context, Remove(ids=ids, **order)))
        self.settle()
        return changed

    def retry(self, ids: str | None = None, **order: Any) -> Changed:
        """Let jobs run once more."""
        changed = self.run(retry(self.context, Retry(ids=ids, **order)))
        self.settle()
        return changed

    def hold(self, ids: str | None = None, **order: Any) -> Changed:
        """Hold jobs."""
        return self._change(hold(self.context, Hold(ids=ids, **order)))

    def release(self, ids: str | None = None, **order: Any) -> Changed:
        """Release jobs."""
        return self._change(release(self.context, Release(ids=ids, **order)))

    def pause(self, ids: str | None = None, **order: Any) -> Changed:
        """Pause jobs, or the queue."""
        return self._change(pause(self.context, Pause(ids=ids, **order)))

    def resume(self, ids: str | None = None, **order: Any) -> Changed:
        """Resume jobs, or the queue."""
        return self._change(resume(self.context, Resume(ids=ids, **order)))

    def suspend(self, ids: str | None = None, **order: Any) -> Changed:
        """Suspend jobs."""
        return self._change(suspend(self.context, Suspend(ids=ids, **order)))

    def let_helpers_answer(self) -> None:
        """Let the event loop run until what helpers have done is on record, and take turns."""
        self.run(asyncio.sleep(0))
        self.run(asyncio.sleep(0))
        self.settle()

    def start(self, ids: str | None = None, **order: Any) -> Changed:
        """Start jobs as the very next."""
        return self._change(start(self.context, Start(ids=ids, **order)))

    def preempt(self, ids: str | None = None, **order: Any) -> Changed:
        """Let jobs make room."""
        return self._change(preempt(self.context, Preempt(ids=ids, **order)))

    def set(self, ids: str | None = None, **to: Any) -> Changed:
        """Change what jobs ask for."""
        return self._change(set_(self.context, Set(ids=ids, to=Settings(**to))))

    def move(self, job: str, position: int = 1, **where: str) -> Moved:
        """Put a job at a position, or before or behind another one."""
        moved = move(self.context, Move(job=job, position=position, **where))
        self.settle()
        return moved

    def gpus(self, action: Any, gpu: str) -> GpuChange:
        """Change the slots."""
        changed = change_gpus(self.context, GpuOrder(action=action, gpu=gpu))
        self.settle()
        return changed

    def config(self, name: str, value: str | None) -> None:
        """Change a setting."""
        change_config(self.context, NewSetting(name=name, value=value))
        self.settle()

    def why(self, job: int) -> str:
        """Why a job stands where it stands."""
        return why(self.context, JobQuery(str(job))).text

    def _change(self, story: Coroutine[Any, Any, Changed]) -> Changed:
        changed = self.run(story)
        self.settle()
        return changed

    def restart(
        self, *, supervisor_too: bool = False, gpus: int | tuple[Slot, ...] | None = None
    ) -> None:
        """Die at this moment, and be succeeded; with `supervisor_too` the executor begins anew as well."""
        self.stop()
        if gpus is not None:
            self.slots = slots(gpus) if isinstance(gpus, int) else gpus
        if supervisor_too:
            self.executor.restart()
        else:
            self.executor.lose_client()
        self.begin()

    def lose_supervisor(self) -> None:
        """Let the executor die and begin anew, while the daemon lives on."""
        self.executor.restart()
        self.settle()

    def stop(self) -> None:
        """Die at this moment."""
        driver = self.context.driver
        driver.stop()
        self.context.ranks.close()
        if driver.stopped.done():
            # asyncio logs an exception that is not read when the garbage collector finds it. If that happens
            # inside ast.parse, Python 3.11 fails there: the log calls ast.parse again.
            driver.stopped.exception()
        self.database.close()

    def close(self) -> None:
        """Let go of everything, once it is seen to be as it must be."""
        try:
            self.disk_is_full = False
            self.engine.turn()
            self.check()
        finally:
            self.stop()
            self.executor.close()
            self.loop.close()

    def states(self) -> dict[int, str]:
        """Where each job stands."""
        return dict(self.database.execute("SELECT id, state FROM job ORDER BY id").fetchall())

    def attempts(self, job: int) -> list[tuple[int, str, str | None]]:
        """Number, outcome and reason of all attempts of a job that are over."""
        return self.database.execute(
            "SELECT number, outcome, reason FROM earlier_attempt WHERE job = ?1 UNION"
            " SELECT attempt, state, reason FROM job WHERE id = ?1"
            " AND state IN ('done', 'failed', 'killed', 'lost') ORDER BY 1",
            (job,),
        ).fetchall()

    def started(self) -> list[str]:
        """The keys of all launches, in their order."""
        return [launch.key for launch in self.executor.launched]

    def notices(self) -> str:
        """What was told to people."""
        return "\n".join(self.context.publisher.notices)

    def column(self, name: str, job: int) -> Any:
        """One field of a job."""
        return self.database.execute(f"SELECT {name} FROM job WHERE id = ?", (job,)).fetchone()[0]

    def check(self) -> None:
        """See that the tally counts, and that only live jobs have slots."""
        counts = Counter(self.states().values())
        counts["running"] += counts.pop("starting", 0)
        told = {state.value: count for state, count in self.jobs.tally().items()}
        assert told == {state: count for state, count in counts.items() if count}
        states = {job: State(state) for job, state in self.states().items()}
        running = self.engine.slot_table.running.values()
        assert sorted(each.attempt.job for each in running) == sorted(
            job for job, state in states.items() if is_live(state)
        )
        holders = {}
        for place in self.engine.slot_table.states:
            if place.current is not None:
                key = place.current.attempt.job
                holders[key] = [slot.index for slot in place.current.slots]
        check_slots(states, holders, range(len(self.engine.slot_table.states)))
