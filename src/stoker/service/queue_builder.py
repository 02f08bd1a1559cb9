"""Builds the daemon's queue: a context with an engine, from a database, slots and an executor."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable

import msgspec

from stoker.core.job import Attempt
from stoker.core.node import NodeFacts
from stoker.core.slot import Slot
from stoker.engine.admission import QUEUE, Admission
from stoker.engine.allocations import Allocations
from stoker.engine.asyncio_driver import AsyncioDriver
from stoker.engine.attempt_starts import Prepare
from stoker.engine.build import EngineParts, build_engine
from stoker.engine.checkpoint_places import CheckpointPlaces
from stoker.engine.config import Config
from stoker.engine.context import QueueContext
from stoker.engine.database_queue import DatabaseQueue
from stoker.engine.engine import Engine
from stoker.engine.eta import Eta
from stoker.engine.event_broadcast import Broadcast
from stoker.engine.event_publisher import Publisher
from stoker.engine.failure_limit import FailureLimit
from stoker.engine.given_up import GivenUp
from stoker.engine.gpu_users import Board
from stoker.engine.hooks import Hooks
from stoker.engine.host_resources import HostCapacity
from stoker.engine.launch_spec import LaunchSpecs, command_facts, run_folder
from stoker.engine.meter import Meter
from stoker.engine.mps import Mps
from stoker.engine.preemption import Preemption
from stoker.engine.queue_ranks import QueueRanks
from stoker.engine.retry_policy import JobPlaces
from stoker.engine.run_progress import EngineRules
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.searches import Searches
from stoker.engine.sharing import Sharing
from stoker.engine.sharing_forecast import Forecast
from stoker.engine.slot_state import DRAINED, REMOVED
from stoker.engine.slots import SlotTable
from stoker.engine.stop_graces import StopGraces
from stoker.engine.suspend_helper import SuspendHelper
from stoker.engine.suspensions import Helper, SuspensionParts, Suspensions
from stoker.engine.termination import Termination
from stoker.engine.thread_share import ThreadShares
from stoker.engine.torch_memory_cap import TorchMemoryCap
from stoker.engine.user_reservations import UserReservations
from stoker.engine.walltimes import Walltimes
from stoker.engine.waste_monitor import WasteMonitor
from stoker.engine.worker_process import WorkerProcesses
from stoker.executors.contract import Executor
from stoker.executors.node_reports import NodeReport
from stoker.gpus.box_file import RULES_COPY
from stoker.service.config import apply, choose_policy
from stoker.store.allocation_records import AllocationRecords
from stoker.store.database import Database
from stoker.store.pending import PendingJobs
from stoker.store.queue_jobs import QueueJobs
from stoker.store.sharing_records import SharingRecords
from stoker.store.suspension_records import SuspensionRecords


class QueueSources(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue is built from. In a cluster, `head` is the name of this machine."""

    home: str
    database: Database
    config: Config
    executor: Executor  # it outlives the queue
    slots: tuple[Slot, ...]
    clock: Callable[[], float]
    wall_clock: Callable[[], float] = time.time  # of reservations
    head: str = ""
    capacity: HostCapacity | None = None  # of this machine
    nodes: Iterable[NodeFacts] = ()  # those known from before
    board: Board | None = None  # for turns with other users of this machine
    prepare: Prepare | None = None  # other than by the specs of the jobs
    suspend_helper: Helper | None = None  # other than processes of the worker task
    name: str = ""  # of the supervisor: it begins the cookies of the jobs
    mps_folder: str | None = None  # where the daemons of MPS have their folders
    on_node_report: Callable[[NodeReport], None] | None = None  # of a cluster


class _QueueBuilder:
    """Makes the parts of a queue in the order in which they need each other."""

    def __init__(self, sources: QueueSources) -> None:
        self.sources = sources
        self.jobs = QueueJobs(sources.database)
        self.events = Broadcast()
        self.meter = Meter(self.jobs)
        self.publisher = Publisher(self.events, self.meter)
        self.slot_table = SlotTable(sources.slots, head=sources.head, capacity=sources.capacity)
        self.thread_shares = ThreadShares(self.slot_table, lambda: sources.config.limits_threads)
        for facts in sources.nodes:
            self.slot_table.update_node(facts)
        self.admission = Admission(sources.database, self.slot_table)
        self.reservations = UserReservations(sources.database)
        self.pending = PendingJobs(self.jobs)
        self.given_up = GivenUp(sources.database, self.jobs)
        self.checkpoint_places = CheckpointPlaces(
            sources.database,
            self.slot_table,
            sources.home,
            lambda: sources.config.sync_limit_bytes,
            sources.clock,
        )
        self.sharing = Sharing(
            self.slot_table,
            SharingRecords(sources.database),
            lambda candidate: command_facts(self.jobs, candidate.id),
            sources.clock,
            self._allowed_of,
        )
        forecast = Forecast(self.sharing, self.slot_table)
        self.eta = Eta(sources.database, self.jobs, self.slot_table, forecast)
        self.allocations = Allocations(
            AllocationRecords(sources.database),
            Walltimes(self.slot_table, self.jobs.facts, self.eta, sources.clock),
            sources.name,
        )
        self.engine = self._build_engine()
        sources.database.on_rollback = self._reload

    def _build_engine(self) -> Engine:
        sources, jobs = self.sources, self.jobs
        config = sources.config
        specs = LaunchSpecs(
            jobs,
            sources.executor,
            sources.home,
            lambda: config.sync_limit_bytes,
            lambda: config.is_warm,
            self._threads_of,
            lambda: config.containers,
        )
        return build_engine(
            EngineParts(
                slot_table=self.slot_table,
                queue=DatabaseQueue(
                    jobs, self.pending, self.admission, self.publisher.on_change, sources.clock
                ),
                executor=sources.executor,
                database=sources.database,
                jobs=jobs,
                listener=self.publisher,
                prepare=sources.prepare or specs.prepare,
                clock=sources.clock,
                wall_clock=sources.wall_clock,
                rules=EngineRules(outlived=True),
                places=JobPlaces(self._folder_of, self._allowed_of),
                sharing=self.sharing,
                torch_memory_cap=TorchMemoryCap(specs.surroundings),
                mps=self._find_mps(),
                board=sources.board,
                reservations=self.reservations,
                rules_copy=os.path.join(sources.home, RULES_COPY),
                pause_queue=self._pause_queue,
                make_preemption=lambda termination, suspensions: Preemption(
                    self.slot_table,
                    termination,
                    jobs,
                    suspensions,
                    lambda: config.text("preempt.by") == "suspend",
                ),
                make_suspensions=self._make_suspensions,
                on_node_report=sources.on_node_report,
                given_up=self.given_up,
                checkpoint_places=self.checkpoint_places,
                walltimes=self.allocations.walltimes,
            )
        )

    def _make_suspensions(self, termination: Termination) -> Suspensions:
        sources = self.sources
        parts = SuspensionParts(
            slot_table=self.slot_table,
            executor=sources.executor,
            jobs=self.jobs,
            records=SuspensionRecords(sources.database),
            sharing=self.sharing,
            helper=sources.suspend_helper or SuspendHelper(sources.home),
            clock=sources.clock,
            name=sources.name,
            notify=self.publisher.on_notice,
            changed=self.publisher.on_change,
        )
        return Suspensions(parts, termination)

    def _find_mps(self) -> Mps | None:
        if self.sources.mps_folder is None:
            return None
        config = self.sources.config
        mps = Mps(
            self.sources.mps_folder, self.publisher.on_notice, lambda: config.is_mps_automatic
        )
        mps.find()
        return mps

    def _threads_of(self, attempt: Attempt) -> int | None:
        """Return how many threads each process of an attempt may start; None for any."""
        return self.thread_shares.of(self.slot_table.running[attempt.key])

    def _allowed_of(self, running: RunningAttempt) -> frozenset[int] | None:
        """Return the slots that a running job may use; None for all."""
        facts = running.entry.facts
        return (
            None
            if facts is None
            else self.admission.allowed(facts.request.project, facts.request.where)
        )

    def _folder_of(self, running: RunningAttempt) -> str:
        facts = running.entry.facts
        assert facts is not None
        surroundings = self.jobs.surroundings(facts.submission)
        return run_folder(self.sources.home, surroundings, fresh=bool(facts.fresh))

    def _pause_queue(self, reason: str) -> None:
        if self.admission.queue_paused is None:
            self.admission.pause_queue(reason)
            self.publisher.on_pause(
                QUEUE,
                f"the queue is paused, {reason}; stoker resume --queue goes on once there is space",
            )

    def _reload(self) -> None:
        """Read the committed state again after a rollback."""
        self.jobs.forget_uncommitted()
        self.pending.load()
        self.admission.load()
        self.sharing.load()
        self.reservations.load()
        self.given_up.load()
        self.checkpoint_places.load()
        self.allocations.records.load()


def assemble(
    sources: QueueSources,
    *,
    supervisor_pids: Callable[[], list[int]] = list,
    parse_slots: Callable[[str], tuple[Slot, ...]] = lambda _text: (),
    slots_changed: Callable[[], None] = lambda: None,
    no_gpu_reason: str | None = None,
    before_turn: Callable[[], None] = lambda: None,
) -> QueueContext:
    """Build a queue; to be called in its event loop."""
    queue = _QueueBuilder(sources)
    engine, publisher, admission = queue.engine, queue.publisher, queue.admission
    context = QueueContext(
        home=sources.home,
        database=sources.database,
        jobs=queue.jobs,
        engine=engine,
        driver=AsyncioDriver(engine, sources.executor, before_turn),
        events=queue.events,
        publisher=publisher,
        meter=queue.meter,
        pending=queue.pending,
        admission=admission,
        reservations=queue.reservations,
        failure_limit=FailureLimit(admission, publisher.on_pause, engine.revoke_followers),
        hooks=Hooks(sources.config, publisher.on_notice),
        eta=queue.eta,
        allocations=queue.allocations,
        ranks=QueueRanks(sources.database, queue.jobs, sources.config.text("order")),
        waste=WasteMonitor(engine.gpus, sources.config, sources.clock, queue.slot_table.is_away),
        config=sources.config,
        since=time.time(),
        supervisor_pids=supervisor_pids,
        parse_slots=parse_slots,
        slots_changed=slots_changed,
        no_gpu_reason=no_gpu_reason,
        worker_tasks=WorkerProcesses(sources.home),
        searches=Searches(
            sources.home,
            sources.database,
            publisher.on_notice,
            on_begin=publisher.forget_sweep,
            on_over=queue.events.touch,
        ),
        stopping=asyncio.get_running_loop().create_future(),
    )
    _follow_ends(context)
    _follow_config(context)
    _follow_turns(context)
    return context


def _follow_ends(context: QueueContext) -> None:
    """Tell the parts of the queue that need it how each attempt ends."""
    suspensions = context.engine.suspensions
    assert suspensions is not None
    suspensions.poke = context.driver.poke
    graces = StopGraces(context.database, context.engine.clock)
    context.engine.termination.preempt_grace_of = graces.grace_of
    context.publisher.attempt_followers.append(graces.on_end)
    context.publisher.followers += [
        suspensions.on_end,
        context.failure_limit.on_end,
        context.eta.on_end,
        context.ranks.on_end,
        context.hooks.on_end,
    ]


def _follow_turns(context: QueueContext) -> None:
    """Plan again when other users of this machine wait for GPUs or release them."""
    turns = context.engine.turns
    if turns is None:
        return

    def on_change() -> None:
        if turns.on_change():
            context.driver.poke()

    asyncio.get_running_loop().add_reader(turns.fileno(), on_change)


def _follow_config(context: QueueContext) -> None:
    apply(context)
    choose_policy(context)
    slot_table = context.engine.slot_table
    slot_table.remember_drained(context.config.words("gpus-drained"), DRAINED)
    slot_table.remember_drained(context.config.words("gpus-removed"), REMOVED)
