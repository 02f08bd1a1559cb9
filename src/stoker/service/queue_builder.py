"""Joins the parts of a queue: database, slots and executor become a context with an engine in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from stoker.core.job import Attempt
from stoker.core.node import NodeFacts
from stoker.core.slot import Slot
from stoker.engine.admission import Admission
from stoker.engine.asyncio_driver import AsyncioDriver
from stoker.engine.config import Config
from stoker.engine.context import QueueContext
from stoker.engine.database_queue import DatabaseQueue
from stoker.engine.engine import Engine
from stoker.engine.engine_rules import EngineRules, Order
from stoker.engine.eta import Eta
from stoker.engine.event_broadcast import Broadcast
from stoker.engine.event_publisher import Publisher
from stoker.engine.failure_limit import FailureLimit
from stoker.engine.foreground_queue import QueueEntry
from stoker.engine.hooks import Hooks
from stoker.engine.launch_spec import LaunchSpecs, run_folder, words_of
from stoker.engine.preemption import Preemption
from stoker.engine.sharing import Sharing
from stoker.engine.sharing_forecast import Forecast
from stoker.engine.slots import DRAINED, REMOVED, RunningAttempt, SlotTable
from stoker.engine.torch_memory_cap import TorchMemoryCap
from stoker.executors.contract import Executor
from stoker.service.config import apply, choose_policy
from stoker.store.database import Database
from stoker.store.pending import PendingJobs
from stoker.store.queue_jobs import QueueJobs
from stoker.store.sharing_records import SharingRecords


def assemble(
    *,
    home: str,
    database: Database,
    config: Config,
    executor: Executor,
    slots: tuple[Slot, ...],
    head: str = "",
    nodes: Iterable[NodeFacts] = (),
    clock: Callable[[], float],
    supervisor_pids: Callable[[], list[int]] = list,
    parse_slots: Callable[[str], tuple[Slot, ...]] = lambda _text: (),
    slots_changed: Callable[[], None] = lambda: None,
    no_gpu_reason: str | None = None,
    before_turn: Callable[[], None] | None = None,
    prepare: Callable[[Attempt, QueueEntry], Order] | None = None,
) -> QueueContext:
    """A queue over an executor that outlives it; to be called in its event loop.

    In a cluster, `head` is what this machine is called there, and `nodes` are those known from before.
    """
    jobs = QueueJobs(database)
    events = Broadcast()
    publisher = Publisher(events)
    slot_table = SlotTable(slots, head=head)
    for facts in nodes:
        slot_table.note_node(facts)
    admission = Admission(database, slot_table)
    pending = PendingJobs(jobs)
    orders = LaunchSpecs(jobs, executor, home, lambda: config.sync_limit_bytes)
    engine = Engine(
        slot_table=slot_table,
        queue=DatabaseQueue(jobs, pending, admission, publisher.on_change, clock),
        executor=executor,
        database=database,
        jobs=jobs,
        listener=publisher,
        rules=EngineRules(outlived=True),
        prepare=prepare or orders.prepare,
        clock=clock,
        on_stuck=lambda entry: pushing.make_room(entry),
    )
    pushing = Preemption(slot_table, engine.termination, jobs)
    sharing = Sharing(
        slot_table, SharingRecords(database), lambda candidate: words_of(jobs, candidate.id), clock
    )
    sharing.allowed_of = engine.retry_policy.allowed_of = lambda running: _allowed(
        admission, running
    )
    engine.share(sharing, TorchMemoryCap(orders.surroundings))
    context = QueueContext(
        home=home,
        database=database,
        jobs=jobs,
        engine=engine,
        driver=AsyncioDriver(engine, executor, before_turn),
        events=events,
        publisher=publisher,
        pending=pending,
        admission=admission,
        failure_limit=FailureLimit(admission, publisher.on_notice, engine.revoke_followers),
        hooks=Hooks(config, publisher.on_notice),
        eta=Eta(database, jobs, slot_table, Forecast(sharing, slot_table)),
        config=config,
        since=time.time(),
        supervisor_pids=supervisor_pids,
        parse_slots=parse_slots,
        slots_changed=slots_changed,
        no_gpu_reason=no_gpu_reason,
    )
    publisher.followers += [context.failure_limit.on_end, context.eta.on_end, context.hooks.on_end]

    def believe_the_database() -> None:
        jobs.forget_uncommitted()
        pending.load()
        admission.load()
        if engine.sharing is not None:
            engine.sharing.load()

    database.on_rollback = believe_the_database
    _follow_config(context)
    _heal(context)
    return context


def _allowed(admission: Admission, running: RunningAttempt) -> frozenset[int] | None:
    """The slots that a job may use which runs; None for all."""
    facts = running.entry.facts
    return None if facts is None else admission.allowed(facts.project, facts.where)


def _heal(context: QueueContext) -> None:
    """Let what failures ask for be done in the daemon's way."""

    def pause(reason: str) -> None:
        if context.admission.queue_paused is None:
            context.admission.pause_queue(reason)
            context.engine.revoke_followers()
            context.publisher.on_notice(
                f"the queue is paused, {reason}; stoker resume --queue goes on once there is space"
            )

    def folder_of(running: RunningAttempt) -> str:
        facts = running.entry.facts
        assert facts is not None
        return run_folder(
            context.home, context.jobs.surroundings(facts.submission), fresh=bool(facts.fresh)
        )

    context.engine.retry_policy.pause = pause
    context.engine.retry_policy.folder_of = folder_of


def _follow_config(context: QueueContext) -> None:
    apply(context)
    choose_policy(context)
    slot_table = context.engine.slot_table
    slot_table.remember_drained(context.config.words("gpus-drained"), DRAINED)
    slot_table.remember_drained(context.config.words("gpus-removed"), REMOVED)
