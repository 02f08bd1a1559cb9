"""Builds an engine from its parts: the same way for the daemon, a foreground run and the Python API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from stoker.engine.attempt_ends import AttemptEnds
from stoker.engine.attempt_reports import AttemptReports
from stoker.engine.attempt_starts import AttemptStarts, LaunchBuilder, Prepare
from stoker.engine.claims_ahead import ClaimsAhead
from stoker.engine.engine import Engine
from stoker.engine.engine_rules import EngineRules
from stoker.engine.events import EngineListener, Notices
from stoker.engine.gpu_features import GpuFeatures
from stoker.engine.gpu_leases import GpuLeases
from stoker.engine.poll_driver import boot_clock_s
from stoker.engine.queue import Queue
from stoker.engine.report_handler import ReportHandler
from stoker.engine.retry_policy import JobPlaces, RetryPolicy
from stoker.engine.run_progress import RunProgress
from stoker.engine.slots import SlotTable
from stoker.engine.termination import Termination
from stoker.engine.turn_planner import TurnPlanner
from stoker.engine.turn_recorder import TurnRecorder
from stoker.engine.warm_status import WarmStatus
from stoker.executors.contract import Executor
from stoker.store.database import Database
from stoker.store.jobs import Jobs

if TYPE_CHECKING:
    from stoker.engine.mps import Mps
    from stoker.engine.preemption import Preemption
    from stoker.engine.sharing import KindOf, Sharing
    from stoker.engine.torch_memory_cap import TorchMemoryCap
    from stoker.executors.node_reports import News


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
    rules: EngineRules = EngineRules()
    places: JobPlaces = JobPlaces()
    sharing: Sharing | None = None
    torch_memory_cap: TorchMemoryCap | None = None
    mps: Mps | None = None
    pause_queue: Callable[[str], None] | None = None  # on a full disk
    make_preemption: Callable[[Termination], Preemption] | None = None
    on_node_news: Callable[[News], None] | None = None  # of a cluster


def build_engine(parts: EngineParts) -> Engine:
    """Join the parts of an engine."""
    slot_table, executor, listener = parts.slot_table, parts.executor, parts.listener
    parts.database.on_unsynced = listener.on_notice
    executor.define_slots([place.slot for place in slot_table.states])
    notices = Notices(listener.on_notice)
    claims_ahead = ClaimsAhead(slot_table, executor, enabled=parts.rules.in_advance)
    progress = RunProgress(parts.rules, claims_ahead, notices)
    gpu_leases = GpuLeases(slot_table, executor, notices.tell_once)
    warm_status = WarmStatus(notices.tell_once)
    termination = Termination(executor, parts.clock, parts.queue.note_ending, slot_table.deadlines)
    retry_policy = _build_retry_policy(parts, claims_ahead)
    ends = AttemptEnds(
        slot_table=slot_table,
        queue=parts.queue,
        jobs=parts.jobs,
        retry_policy=retry_policy,
        gpus=retry_policy.gpus,
        progress=progress,
        listener=listener,
        notices=notices,
    )
    attempts = AttemptReports(
        slot_table=slot_table,
        executor=executor,
        jobs=parts.jobs,
        ends=ends,
        termination=termination,
        listener=listener,
        kills_unknown=parts.on_node_news is not None,
    )
    reports = ReportHandler(
        attempts=attempts,
        slot_table=slot_table,
        gpu_leases=gpu_leases,
        claims_ahead=claims_ahead,
        warm_status=warm_status,
        progress=progress,
        notices=notices,
        on_node_news=parts.on_node_news,
    )
    starts = AttemptStarts(
        slot_table=slot_table,
        queue=parts.queue,
        launches=LaunchBuilder(parts.prepare, parts.jobs, retry_policy, warm_status),
        ends=ends,
        claims_ahead=claims_ahead,
        listener=listener,
    )
    return Engine(
        slot_table=slot_table,
        executor=executor,
        recorder=TurnRecorder(parts.database, listener, outlived=parts.rules.outlived),
        reports=reports,
        planner=_build_planner(parts, retry_policy, gpu_leases, claims_ahead, starts, termination),
        termination=termination,
        progress=progress,
        clock=parts.clock,
    )


def make_foreground_sharing(slot_table: SlotTable, database: Database, kind_of: KindOf) -> Sharing:
    """Let the jobs of one run share GPUs, once these can be seen."""
    from stoker.engine.sharing import Sharing  # late: most runs do not share
    from stoker.store.sharing_records import SharingRecords

    sharing = Sharing(slot_table, SharingRecords(database), kind_of, boot_clock_s)
    sharing.needs.clear()  # of an earlier run, whose jobs had other numbers
    return sharing


def _build_retry_policy(parts: EngineParts, claims_ahead: ClaimsAhead) -> RetryPolicy:
    gpus = GpuFeatures(parts.clock, sharing=parts.sharing, mps=parts.mps)
    pause_queue = parts.pause_queue

    def pause(reason: str) -> None:
        assert pause_queue is not None
        pause_queue(reason)
        claims_ahead.revoke()

    return RetryPolicy(
        parts.slot_table,
        parts.jobs,
        parts.listener.on_notice,
        gpus,
        parts.places,
        None if pause_queue is None else pause,
    )


def _build_planner(
    parts: EngineParts,
    retry_policy: RetryPolicy,
    gpu_leases: GpuLeases,
    claims_ahead: ClaimsAhead,
    starts: AttemptStarts,
    termination: Termination,
) -> TurnPlanner:
    shared_slots = None
    if parts.sharing is not None:
        from stoker.engine.shared_slots import SharedSlots  # late: most runs do not share

        shared_slots = SharedSlots(
            parts.sharing,
            parts.slot_table,
            parts.executor,
            gpu_leases,
            starts.claim,
            parts.torch_memory_cap,
        )
    preemption = None if parts.make_preemption is None else parts.make_preemption(termination)
    return TurnPlanner(
        slot_table=parts.slot_table,
        queue=parts.queue,
        retry_policy=retry_policy,
        gpu_leases=gpu_leases,
        claims_ahead=claims_ahead,
        starts=starts,
        shared_slots=shared_slots,
        make_room=None if preemption is None else preemption.make_room,
    )
