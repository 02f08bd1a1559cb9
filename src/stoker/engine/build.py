"""Builds an engine from its parts: the same way for the daemon, a foreground run and the Python API."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from stoker.accounts import name_of
from stoker.engine.attempt_ends import AttemptEnds
from stoker.engine.attempt_reports import AttemptReports
from stoker.engine.attempt_starts import AttemptStarts, LaunchBuilder, Prepare
from stoker.engine.claims_ahead import ClaimsAhead
from stoker.engine.engine import Engine
from stoker.engine.events import EngineListener, Notices
from stoker.engine.gpu_features import GpuFeatures
from stoker.engine.gpu_leases import GpuLeases
from stoker.engine.gpu_turns import GpuTurns
from stoker.engine.gpu_users import Board
from stoker.engine.poll_driver import boot_clock_s
from stoker.engine.queue import Queue
from stoker.engine.report_handler import ReportHandler
from stoker.engine.retry_policy import JobPlaces, RetryPolicy
from stoker.engine.run_progress import EngineRules, RunProgress
from stoker.engine.slots import SlotTable
from stoker.engine.termination import Termination
from stoker.engine.turn_planner import TurnPlanner
from stoker.engine.turn_recorder import TurnRecorder
from stoker.engine.warm_status import WarmStatus
from stoker.executors.contract import Executor
from stoker.gpus.box_file import BoxFile
from stoker.store.database import Database
from stoker.store.jobs import Jobs

if TYPE_CHECKING:
    from stoker.engine.checkpoint_places import CheckpointPlaces
    from stoker.engine.given_up import GivenUp
    from stoker.engine.mps import Mps
    from stoker.engine.preemption import Preemption
    from stoker.engine.shared_slots import SharedSlots
    from stoker.engine.sharing import KindOf, Sharing
    from stoker.engine.suspensions import Suspensions
    from stoker.engine.torch_memory_cap import TorchMemoryCap
    from stoker.engine.user_reservations import UserReservations
    from stoker.engine.walltimes import Walltimes
    from stoker.executors.node_reports import NodeReport


class EngineParts(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is built from. Parts without a value are features that it does not have."""

    slot_table: SlotTable
    queue: Queue
    executor: Executor
    database: Database
    jobs: Jobs
    listener: EngineListener
    prepare: Prepare
    clock: Callable[[], float]
    wall_clock: Callable[[], float] = time.time
    rules: EngineRules = EngineRules()
    places: JobPlaces = JobPlaces()
    sharing: Sharing | None = None
    torch_memory_cap: TorchMemoryCap | None = None
    mps: Mps | None = None
    board: Board | None = None  # for turns with other users of this machine
    reservations: UserReservations | None = None  # of the GPUs of this machine
    rules_copy: str | None = None  # file of this user for the last good rules of the machine
    pause_queue: Callable[[str], None] | None = None  # on a full disk
    make_preemption: Callable[[Termination, Suspensions | None], Preemption] | None = None
    make_suspensions: Callable[[Termination], Suspensions] | None = None
    on_node_report: Callable[[NodeReport], None] | None = None  # of a cluster
    given_up: GivenUp | None = None
    checkpoint_places: CheckpointPlaces | None = None
    walltimes: Walltimes | None = None  # of nodes that end


def build_engine(parts: EngineParts) -> Engine:
    """Join the parts of an engine."""
    parts.database.on_unsynced = parts.listener.on_notice
    parts.executor.define_slots([slot_state.slot for slot_state in parts.slot_table.states])
    return _EngineBuilder(parts).build()


def make_foreground_sharing(slot_table: SlotTable, database: Database, kind_of: KindOf) -> Sharing:
    """Let the jobs of one run share GPUs, once these can be seen."""
    from stoker.engine.sharing import Sharing  # late: most runs do not share
    from stoker.store.sharing_records import SharingRecords

    sharing = Sharing(slot_table, SharingRecords(database), kind_of, boot_clock_s)
    sharing.needs.by_job.clear()  # of an earlier run, whose jobs had other numbers
    return sharing


class _EngineBuilder:
    """Makes the collaborators of an engine, each once, in the order in which they need each other."""

    def __init__(self, parts: EngineParts) -> None:
        slot_table, executor = parts.slot_table, parts.executor
        self._parts = parts
        self._notices = Notices(parts.listener.on_notice)
        self._claims_ahead = ClaimsAhead(slot_table, executor, enabled=parts.rules.in_advance)
        self._progress = RunProgress(parts.rules, self._claims_ahead, self._notices)
        self._turns = (
            None
            if parts.board is None
            else GpuTurns(
                slot_table,
                parts.board,
                name_of,
                self._notices.tell_once,
                BoxFile(parts.rules_copy),
                wall_clock=parts.wall_clock,
                reservations=parts.reservations,
            )
        )
        self._gpu_leases = GpuLeases(slot_table, executor, self._notices.tell_once, self._turns)
        self._warm_status = WarmStatus(self._notices.tell_once)
        self._termination = Termination(
            executor, parts.clock, parts.queue.note_ending, slot_table.deadlines
        )
        if self._turns is not None:
            self._termination.most_job_s = self._turns.most_job_s
            self._turns.on_rules = self._follow_rules
        self._suspensions = (
            None if parts.make_suspensions is None else parts.make_suspensions(self._termination)
        )
        self._retry_policy = self._make_retry_policy()
        self._ends = AttemptEnds(
            slot_table=slot_table,
            queue=parts.queue,
            jobs=parts.jobs,
            retry_policy=self._retry_policy,
            progress=self._progress,
            listener=parts.listener,
            notices=self._notices,
        )

    def build(self) -> Engine:
        parts = self._parts
        return Engine(
            slot_table=parts.slot_table,
            executor=parts.executor,
            recorder=TurnRecorder(parts.database, parts.listener, outlived=parts.rules.outlived),
            reports=self._make_report_handler(),
            planner=self._make_planner(),
            termination=self._termination,
            progress=self._progress,
            clock=parts.clock,
        )

    def _follow_rules(self) -> None:
        for running in self._parts.slot_table.running.values():
            self._termination.follow_rules(running)

    def _make_retry_policy(self) -> RetryPolicy:
        parts, pause_queue = self._parts, self._parts.pause_queue

        def pause(reason: str) -> None:
            assert pause_queue is not None
            pause_queue(reason)
            self._claims_ahead.revoke()

        return RetryPolicy(
            parts.slot_table,
            parts.jobs,
            parts.listener.on_notice,
            GpuFeatures(parts.clock, sharing=parts.sharing, mps=parts.mps),
            parts.places,
            None if pause_queue is None else pause,
            parts.checkpoint_places,
            parts.walltimes,
        )

    def _make_report_handler(self) -> ReportHandler:
        parts = self._parts
        attempts = AttemptReports(
            slot_table=parts.slot_table,
            executor=parts.executor,
            jobs=parts.jobs,
            ends=self._ends,
            termination=self._termination,
            listener=parts.listener,
            suspensions=self._suspensions,
            is_cluster=parts.on_node_report is not None,
            given_up=parts.given_up,
        )
        return ReportHandler(
            attempts=attempts,
            slot_table=parts.slot_table,
            gpu_leases=self._gpu_leases,
            claims_ahead=self._claims_ahead,
            warm_status=self._warm_status,
            progress=self._progress,
            notices=self._notices,
            on_node_report=parts.on_node_report,
        )

    def _make_planner(self) -> TurnPlanner:
        parts = self._parts
        suspensions = self._suspensions
        launches = LaunchBuilder(parts.prepare, parts.jobs, self._retry_policy, self._warm_status)
        starts = AttemptStarts(
            slot_table=parts.slot_table,
            queue=parts.queue,
            launches=launches,
            ends=self._ends,
            claims_ahead=self._claims_ahead,
            listener=parts.listener,
            suspensions=suspensions,
        )
        make_preemption = parts.make_preemption
        preemption = (
            None if make_preemption is None else make_preemption(self._termination, suspensions)
        )
        if self._turns is not None and preemption is not None:
            self._turns.yields.push = preemption.push
        return TurnPlanner(
            slot_table=parts.slot_table,
            queue=parts.queue,
            retry_policy=self._retry_policy,
            gpu_leases=self._gpu_leases,
            claims_ahead=self._claims_ahead,
            starts=starts,
            shared_slots=self._make_shared_slots(starts),
            make_room=None if preemption is None else preemption.make_room,
            suspensions=suspensions,
            turns=self._turns,
        )

    def _make_shared_slots(self, starts: AttemptStarts) -> SharedSlots | None:
        parts = self._parts
        if parts.sharing is None:
            return None
        from stoker.engine.shared_slots import SharedSlots  # late: most runs do not share

        return SharedSlots(
            parts.sharing,
            parts.slot_table,
            parts.executor,
            self._gpu_leases,
            starts.claim,
            parts.torch_memory_cap,
        )
