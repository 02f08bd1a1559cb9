"""Joins the parts of a queue: database, slots and executor become a hub with an engine in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from stoker.core.job import Attempt
from stoker.core.node import NodeFacts
from stoker.core.slot import Slot
from stoker.engine.board import DRAINED, REMOVED, Board, Running
from stoker.engine.brake import Brake
from stoker.engine.broadcast import Broadcast
from stoker.engine.capping import Capping
from stoker.engine.config import Config
from stoker.engine.eta import Eta
from stoker.engine.forecast import Forecast
from stoker.engine.gate import Gate
from stoker.engine.hooks import Hooks
from stoker.engine.hub import Hub
from stoker.engine.loop import Engine
from stoker.engine.orders import Orders, run_folder, words_of
from stoker.engine.publisher import Publisher
from stoker.engine.pulse import Pulse
from stoker.engine.pushing import Pushing
from stoker.engine.queue import Entry
from stoker.engine.rules import Order, Rules
from stoker.engine.service.config import apply, choose_policy
from stoker.engine.sharing import Sharing
from stoker.engine.stored import StoredQueue
from stoker.executors.contract import Executor
from stoker.store.database import Database
from stoker.store.queued import QueuedJobs
from stoker.store.rooms import Rooms
from stoker.store.shelf import Shelf


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
    shepherd_pids: Callable[[], list[int]] = list,
    parse_slots: Callable[[str], tuple[Slot, ...]] = lambda _text: (),
    slots_changed: Callable[[], None] = lambda: None,
    no_gpu_reason: str | None = None,
    before_turn: Callable[[], None] | None = None,
    prepare: Callable[[Attempt, Entry], Order] | None = None,
) -> Hub:
    """A queue over an executor that outlives it; to be called in its event loop.

    In a cluster, `head` is what this machine is called there, and `nodes` are those known from before.
    """
    jobs = QueuedJobs(database)
    events = Broadcast()
    publisher = Publisher(events)
    board = Board(slots, head=head)
    for facts in nodes:
        board.note_node(facts)
    gate = Gate(database, board)
    shelf = Shelf(jobs)
    orders = Orders(jobs, executor, home, lambda: config.sync_limit_bytes)
    engine = Engine(
        board=board,
        queue=StoredQueue(jobs, shelf, gate, publisher.on_change, clock),
        executor=executor,
        database=database,
        jobs=jobs,
        listener=publisher,
        rules=Rules(outlived=True),
        prepare=prepare or orders.prepare,
        clock=clock,
        on_stuck=lambda entry: pushing.make_room(entry),
    )
    pushing = Pushing(board, engine.endings, jobs)
    sharing = Sharing(board, Rooms(database), lambda candidate: words_of(jobs, candidate.id), clock)
    sharing.allowed_of = engine.healing.allowed_of = lambda running: _allowed(gate, running)
    engine.share(sharing, Capping(orders.surroundings))
    hub = Hub(
        home=home,
        database=database,
        jobs=jobs,
        engine=engine,
        pulse=Pulse(engine, executor, before_turn),
        events=events,
        publisher=publisher,
        shelf=shelf,
        gate=gate,
        brake=Brake(gate, publisher.on_notice, engine.revoke_followers),
        hooks=Hooks(config, publisher.on_notice),
        eta=Eta(database, jobs, board, Forecast(sharing, board)),
        config=config,
        since=time.time(),
        shepherd_pids=shepherd_pids,
        parse_slots=parse_slots,
        slots_changed=slots_changed,
        no_gpu_reason=no_gpu_reason,
    )
    publisher.followers += [hub.brake.on_end, hub.eta.on_end, hub.hooks.on_end]

    def believe_the_database() -> None:
        jobs.forget_uncommitted()
        shelf.load()
        gate.load()
        if engine.sharing is not None:
            engine.sharing.load()

    database.on_rollback = believe_the_database
    _follow_config(hub)
    _heal(hub)
    return hub


def _allowed(gate: Gate, running: Running) -> frozenset[int] | None:
    """The slots that a job may use which runs; None for all."""
    facts = running.entry.facts
    return None if facts is None else gate.allowed(facts.project, facts.where)


def _heal(hub: Hub) -> None:
    """Let what failures ask for be done in the daemon's way."""

    def pause(reason: str) -> None:
        if hub.gate.queue_paused is None:
            hub.gate.pause_queue(reason)
            hub.engine.revoke_followers()
            hub.publisher.on_notice(
                f"the queue is paused, {reason}; stoker resume --queue goes on once there is space"
            )

    def folder_of(running: Running) -> str:
        facts = running.entry.facts
        assert facts is not None
        return run_folder(
            hub.home, hub.jobs.surroundings(facts.submission), fresh=bool(facts.fresh)
        )

    hub.engine.healing.pause = pause
    hub.engine.healing.folder_of = folder_of


def _follow_config(hub: Hub) -> None:
    apply(hub)
    choose_policy(hub)
    board = hub.engine.board
    board.remember_drained(hub.config.words("gpus-drained"), DRAINED)
    board.remember_drained(hub.config.words("gpus-removed"), REMOVED)
