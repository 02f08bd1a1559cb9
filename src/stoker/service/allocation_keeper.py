"""Keeps allocations of Slurm: asks for one when jobs wait that fit it, and gives it back.

Slurm is asked for all allocations with one call. While it does not answer, everything stays as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

import msgspec

from stoker.cluster.join_tokens import revoke_join_token
from stoker.cluster.settings import load_settings
from stoker.cluster.slurm import commands
from stoker.cluster.slurm.batch_script import (
    last_words,
    make_options,
    make_script,
    node_name,
    read_token,
    shared_folder,
    write_token,
)
from stoker.cluster.slurm.commands import SlurmError, SlurmJob, SlurmSilentError
from stoker.core.allocation import (
    GRACE_S,
    LEAVE_S,
    PATIENCE_S,
    Allocation,
    Need,
    NodeUse,
    Rule,
    Stage,
    count_wanted,
    find_stops,
    should_ask,
    why_give_back,
    why_withdraw,
)
from stoker.core.job import Ending
from stoker.engine.context import QueueContext
from stoker.engine.walltimes import NodeEnd
from stoker.errors import StokerError
from stoker.service.blocking_calls import call_in_thread
from stoker.service.kill import end_attempt

_STEP_S = 1.0
_LOOK_S, _CALM_LOOK_S = (
    5.0,
    30.0,
)  # between two calls of squeue; the second if nothing is on its way
_SHARE = 20  # squeue runs for at most 1/_SHARE of the time
_AGAIN_S = 15.0  # after a start that failed
_LAST_S = 7.0  # before Slurm's kill, a node is given back whatever runs there
_LOOKED_AT = 64  # waiting jobs of each class


async def keep_allocations_for_ever(context: QueueContext) -> None:
    """Keep allocations while there are rules or allocations; sleep otherwise.

    Slurm may take long to answer: what is due on nodes meanwhile does not wait for it.
    """
    keeper = AllocationKeeper(context)
    records = context.allocations.records
    talk: asyncio.Future[None] | None = None
    while True:
        version = context.events.version
        if records.rules or records.allocations:
            with _a_full_disk_is_reported_by_the_engine():
                keeper.follow()
            if talk is None or talk.done():
                talk = asyncio.ensure_future(_talk(keeper))
        else:
            await context.events.changed_since(version)
        await asyncio.sleep(_STEP_S)


async def _talk(keeper: AllocationKeeper) -> None:
    with _a_full_disk_is_reported_by_the_engine():
        await keeper.talk()


def _a_full_disk_is_reported_by_the_engine() -> contextlib.suppress:
    return contextlib.suppress(StokerError, OSError)


class AllocationKeeper:
    """Carries out the rules of one queue."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._queue = context.allocations.queue
        self._clock = context.engine.clock
        self._book = context.allocations
        self._records = context.allocations.records
        self._ends = context.allocations.walltimes.ends
        self._look_at = 0.0
        self._ask_at: dict[int, float] = {}
        self._wanted_since: dict[int, float] = {}
        self._unwanted_since: dict[int, float] = {}
        self._idle_since: dict[int, float] = {}
        self._ends_at: dict[int, float | None] = {}
        context.engine.slot_table.most_to_come = self._records.most_gpus()
        for allocation in self._records.allocations:
            # Nothing starts there until Slurm has said for how long it lasts.
            self._ends[node_name(allocation)] = NodeEnd(self._clock())

    def follow(self) -> None:
        """Do what is due on the nodes."""
        self._context.engine.slot_table.most_to_come = self._records.most_gpus()
        self._follow_nodes()
        self._stop_jobs()
        self._decide_ends()

    async def talk(self) -> None:
        """Ask Slurm how it is, and tell it what to do."""
        if self._clock() >= self._look_at:
            await self._look()
            self.follow()
        await self._cancel(self._find_cancelled())
        needs = self._find_needs()
        for rule in [*self._records.rules.values()]:
            await self._serve(rule, needs)
            self._finish_rule(rule)

    # What Slurm says

    async def _look(self) -> None:
        """Ask Slurm for all jobs of this queue."""
        began = self._clock()
        try:
            jobs = await call_in_thread(commands.list_jobs, f"{self._queue}-")
        except SlurmError as error:
            self._set_trouble(str(error))
            self._look_at = self._clock() + _AGAIN_S
            return
        self._set_trouble(None)
        for allocation in [*self._records.allocations.values()]:
            if allocation.id not in jobs:
                self._on_over(allocation)
        for job in jobs.values():
            self._on_job(job)
        now = self._clock()
        self._look_at = now + max(self._look_period_s(), _SHARE * (now - began))

    def _look_period_s(self) -> float:
        stages = {each.stage for each in self._records.allocations.values()}
        return _CALM_LOOK_S if stages <= {Stage.UP} else _LOOK_S

    def _set_trouble(self, trouble: str | None) -> None:
        if trouble is not None and trouble != self._book.trouble:
            self._context.publisher.on_notice(f"allocations: {trouble}")
        self._book.trouble = trouble

    def _on_job(self, job: SlurmJob) -> None:
        known = self._records.allocations.get(job.id)
        if known is None:
            rule = job.name.removeprefix(f"{self._queue}-")
            known = Allocation(id=job.id, rule=int(rule) if rule.isdigit() else 0)
        stage = known.stage
        if stage is Stage.QUEUED and not job.is_pending:
            stage = Stage.STARTING
        began_at = known.began_at
        if began_at is None and stage is Stage.STARTING:
            began_at = time.time()
        why = job.reason if stage is Stage.QUEUED else known.why
        why = None if stage in (Stage.STARTING, Stage.UP) or why == "None" else why
        self._records.put(msgspec.structs.replace(known, stage=stage, why=why, began_at=began_at))
        if not job.is_pending:
            self._ends_at[job.id] = None if job.left_s is None else self._clock() + job.left_s
            self._note_end(self._records.allocations[job.id])

    def _on_over(self, allocation: Allocation) -> None:
        """Forget an allocation that Slurm knows no more, and its node if nothing can run there."""
        if allocation.is_coming:
            words = last_words(allocation.id, shared_folder(self._queue))
            told = f"Slurm's job {allocation.id} was over before its node had joined"
            self._fail(allocation.rule, told if words is None else f"{told}: {words}")
        self._records.forget(allocation.id)
        for times in (self._idle_since, self._ends_at, self._unwanted_since):
            times.pop(allocation.id, None)
        with contextlib.suppress(OSError):
            if not allocation.is_coming:
                os.unlink(os.path.join(shared_folder(self._queue), f"{allocation.id}.log"))
        node, nodes = node_name(allocation.id), self._context.nodes
        self._ends.pop(node, None)
        if nodes is None or node not in nodes.known:
            return
        self._ends[node] = NodeEnd(None, is_ending=True)
        if not self._context.engine.attempts_on(node):
            with self._context.database.transaction():
                nodes.forget(node)
            self._ends.pop(node)
        self._context.driver.poke()

    def _fail(self, number: int, reason: str) -> None:
        """Count a start of a rule that failed."""
        rule = self._records.rules.get(number)
        if rule is None:
            return
        changed = rule.after_failure(reason)
        self._records.put_rule(changed)
        self._ask_at[rule.id] = self._clock() + _AGAIN_S
        paused = changed.paused is not None and rule.paused is None
        text = f"allocation rule {rule.id}: {reason}"
        if paused:
            text = f"allocation rule {rule.id} is paused: {changed.paused}"
        self._context.publisher.on_notice(text)

    # Nodes of allocations

    def _follow_nodes(self) -> None:
        """Note which allocations have become nodes, and which nodes are idle."""
        slot_table = self._context.engine.slot_table
        for node in [*self._ends]:
            if node not in slot_table.nodes and self._allocation_of(node) is None:
                del self._ends[node]
        for allocation in [*self._records.allocations.values()]:
            node = node_name(allocation.id)
            facts = slot_table.nodes.get(node)
            if allocation.is_coming and facts is not None and facts.away is None:
                self._on_up(allocation)
            is_idle = facts is not None and not self._context.engine.attempts_on(node)
            if is_idle:
                self._idle_since.setdefault(allocation.id, self._clock())
            else:
                self._idle_since.pop(allocation.id, None)

    def _allocation_of(self, node: str) -> Allocation | None:
        found = self._records.allocations.values()
        return next((each for each in found if node_name(each.id) == node), None)

    def _on_up(self, allocation: Allocation) -> None:
        nodes, rule = self._context.nodes, self._records.rules.get(allocation.rule)
        changed = msgspec.structs.replace(allocation, stage=Stage.UP, why=None)
        self._records.put(changed)
        if nodes is not None and rule is not None:
            facts = nodes.known.get(node_name(allocation.id))
            gpus = {} if facts is None else facts.gpus
            self._records.put_rule(rule.after_success(gpu.name for gpu in gpus.values()))
        self._look_at = min(self._look_at, self._clock())  # its end is not known yet

    def _note_end(self, allocation: Allocation) -> None:
        """Let only jobs start on a node that are over before its end."""
        rule = self._records.rules.get(allocation.rule)
        end = NodeEnd(
            self._ends_at.get(allocation.id),
            may_cut=rule is not None and rule.may_cut,
            is_ending=allocation.stage in (Stage.ENDING, Stage.CANCELLED),
        )
        node = node_name(allocation.id)
        if self._ends.get(node) != end:
            self._ends[node] = end
            self._context.driver.poke()

    def _left_s(self, allocation: Allocation) -> float | None:
        ends_at = self._ends_at.get(allocation.id)
        return None if ends_at is None else ends_at - self._clock()

    def _stop_jobs(self) -> None:
        """End the jobs that would be there when their allocation ends; they wait again."""
        for allocation in self._records.allocations.values():
            ends_at = self._ends_at.get(allocation.id)
            if ends_at is None:
                continue
            attempts = {
                running.key: running
                for running in self._context.engine.attempts_on(node_name(allocation.id))
                if running.deadline is None or running.deadline > ends_at - LEAVE_S
            }
            graces = {
                key: max(GRACE_S, running.entry.request.options.grace_s)
                for key, running in attempts.items()
            }
            for key in find_stops(graces, ends_at - self._clock()):
                reason = f"the allocation of {node_name(allocation.id)} ends"
                end_attempt(self._context, attempts[key], reason, Ending.PUSH)

    # Decisions

    def _decide_ends(self) -> None:
        """Let nodes get no more jobs that are to be given back."""
        for allocation in [*self._records.allocations.values()]:
            since = self._idle_since.get(allocation.id)
            idle_s = None if since is None else self._clock() - since
            use = NodeUse(idle_s, self._left_s(allocation))
            rule = self._records.rules.get(allocation.rule)
            why = why_give_back(rule, allocation, use)
            if why is not None:
                changed = msgspec.structs.replace(allocation, stage=Stage.ENDING, why=why)
                self._records.put(changed)
                self._note_end(changed)

    def _find_cancelled(self) -> list[Allocation]:
        """Return the allocations to cancel now, each with its reason."""
        found = []
        for allocation in self._records.allocations.values():
            rule = self._records.rules.get(allocation.rule)
            why = why_withdraw(
                rule, allocation, self._unwanted_s(allocation), self._waited_s(allocation)
            )
            if why is None and allocation.stage is Stage.ENDING:
                left_s = self._left_s(allocation)
                is_last = left_s is not None and left_s <= _LAST_S
                if is_last or not self._context.engine.attempts_on(node_name(allocation.id)):
                    why = allocation.why
            if why is not None:
                found.append(msgspec.structs.replace(allocation, why=why))
        return found

    def _unwanted_s(self, allocation: Allocation) -> float | None:
        if self._book.wanted.get(allocation.rule):
            self._unwanted_since.pop(allocation.id, None)
            return None
        since = self._unwanted_since.setdefault(allocation.id, self._clock())
        return self._clock() - since

    @staticmethod
    def _waited_s(allocation: Allocation) -> float | None:
        is_starting = allocation.stage is Stage.STARTING and allocation.began_at is not None
        return time.time() - (allocation.began_at or 0.0) if is_starting else None

    async def _cancel(self, allocations: list[Allocation]) -> None:
        if not allocations:
            return
        try:
            await call_in_thread(commands.cancel, [each.id for each in allocations])
        except SlurmError as error:
            self._set_trouble(str(error))
            return
        for each in allocations:
            if each.stage is Stage.STARTING:
                self._fail(each.rule, f"{each.why} (Slurm's job {each.id})")
            changed = msgspec.structs.replace(each, stage=Stage.CANCELLED)
            self._records.put(changed)
            self._note_end(changed)
        self._look_at = self._clock() + _STEP_S

    # Asking

    def _find_needs(self) -> list[Need]:
        """Return what the first waiting jobs need that start nowhere now."""
        engine = self._context.engine
        if not len(engine.queue):
            return []
        starting = engine.preview().starting
        entries = engine.queue.peek(_LOOKED_AT, 0)
        found = [entry.known.id for entry in entries if entry.known is not None]
        facts = [self._context.jobs.facts(job) for job in found if job not in starting]
        return [self._book.walltimes.need_of(each) for each in facts]

    async def _serve(self, rule: Rule, needs: list[Need]) -> None:
        """Ask for one more allocation of a rule if jobs have waited long enough for it."""
        now = self._clock()
        wanted = self._book.wanted[rule.id] = count_wanted(rule, needs)
        allocations = self._records.allocations.values()
        if not wanted or not should_ask(rule, allocations, wanted):
            self._wanted_since.pop(rule.id, None)
            return
        since = self._wanted_since.setdefault(rule.id, now)
        if now - since < PATIENCE_S or now < self._ask_at.get(rule.id, 0.0):
            return
        settings = load_settings(self._context.home)
        if settings is None or not settings.is_head:
            return
        try:
            job = await self._submit(rule)
        except SlurmSilentError as error:
            self._set_trouble(str(error))
            self._ask_at[rule.id] = now + _AGAIN_S
        except StokerError as error:
            self._fail(rule.id, str(error))
        else:
            self._records.put(Allocation(id=job, rule=rule.id))
            self._ends[node_name(job)] = NodeEnd(now + rule.time_s, may_cut=rule.may_cut)
            self._look_at = min(self._look_at, now + _LOOK_S)

    async def _submit(self, rule: Rule) -> int:
        return await call_in_thread(submit_allocation, self._context.home, rule, self._queue)

    def _finish_rule(self, rule: Rule) -> None:
        """Forget a rule that was removed, when its last allocation is over."""
        if not rule.is_removed or self._book.of(rule.id):
            return
        folder = shared_folder(self._queue)
        token = read_token(rule.id, folder)
        if token is not None:
            revoke_join_token(self._context.home, token)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, f"token-{rule.id}"))
        self._records.forget_rule(rule.id)
        self._context.engine.slot_table.most_to_come = self._records.most_gpus()
        self._book.wanted.pop(rule.id, None)


def submit_allocation(home: str, rule: Rule, queue: str, *, only_test: bool = False) -> int:
    """Ask Slurm for an allocation, after a test whether Slurm would give it. Returns its id."""
    settings = load_settings(home)
    if settings is None or not settings.is_head:
        raise StokerError("allocations need a cluster whose first box this is: stoker cluster up")
    folder = shared_folder(queue)
    options = make_options(rule, queue, folder)
    token_file = os.path.join(folder, f"token-{rule.id}")
    commands.submit(options, make_script(rule, settings, token_file), only_test=True)
    if only_test:
        return 0
    script = make_script(rule, settings, write_token(home, rule.id, folder))
    return commands.submit(options, script)
