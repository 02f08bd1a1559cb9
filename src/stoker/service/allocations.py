"""`cluster alloc`: rules by which the queue asks Slurm for allocations."""

from __future__ import annotations

import msgspec

from stoker.cluster.slurm.batch_script import check_options, node_name
from stoker.core.allocation import Rule, Stage
from stoker.core.job import Ending
from stoker.engine.context import QueueContext
from stoker.errors import ConflictError, NotFoundError, StokerError, UsageError
from stoker.service.allocation_keeper import submit_allocation
from stoker.service.blocking_calls import call_in_thread
from stoker.service.kill import end_attempt
from stoker.wire import AllocationInfo, AllocationOrder, AllocationRule, NewAllocationRule

_PAUSED = "by request"


def read_allocations(context: QueueContext) -> list[AllocationRule]:
    """Return all rules, each with its allocations."""
    return [_info(context, rule) for rule in context.allocations.records.rules.values()]


async def add_allocation_rule(context: QueueContext, order: NewAllocationRule) -> AllocationRule:
    """Add a rule, after a test whether Slurm would give such an allocation."""
    try:
        check_options(order.options)
    except StokerError as error:
        raise UsageError(str(error), field="options") from None
    if context.nodes is None:
        raise ConflictError("allocations become nodes of a cluster: stoker cluster up comes first")
    rule = Rule(
        id=0,
        time_s=order.time_s,
        gpus=order.gpus,
        most=order.most,
        idle_s=order.idle_s,
        options=tuple(order.options),
        setup=order.setup,
        may_cut=order.may_cut,
    )
    try:
        await call_in_thread(_try, context.home, rule, context.allocations.queue)
    except StokerError as error:
        raise ConflictError(f"Slurm would not give such an allocation: {error}") from None
    records = context.allocations.records
    made = records.add_rule(rule)
    context.engine.slot_table.most_to_come = records.most_gpus()
    context.events.touch()
    context.driver.poke()
    return _info(context, made)


def change_allocation_rule(context: QueueContext, order: AllocationOrder) -> AllocationRule:
    """Pause or resume a rule, or remove it with its allocations."""
    records = context.allocations.records
    rule = records.rules.get(order.rule)
    if rule is None:
        there = ", ".join(map(str, records.rules)) or "none"
        raise NotFoundError(f"there is no allocation rule {order.rule}; there is: {there}")
    if order.action == "resume":
        changed = rule.resumed()
    elif order.action == "pause":
        changed = msgspec.structs.replace(rule, paused=rule.paused or _PAUSED)
    else:
        changed = msgspec.structs.replace(rule, is_removed=True)
    records.put_rule(changed)
    if order.action == "rm" and order.force:
        for allocation in context.allocations.of(rule.id):
            for running in context.engine.attempts_on(node_name(allocation.id)):
                end_attempt(context, running, "its allocation is given back", Ending.PUSH)
    context.events.touch()
    return _info(context, changed)


def _try(home: str, rule: Rule, queue: str) -> None:
    submit_allocation(home, rule, queue, only_test=True)


def _info(context: QueueContext, rule: Rule) -> AllocationRule:
    book = context.allocations
    return AllocationRule(
        id=rule.id,
        time_s=rule.time_s,
        gpus=rule.gpus,
        most=rule.most,
        idle_s=rule.idle_s,
        options=list(rule.options),
        setup=rule.setup,
        may_cut=rule.may_cut,
        paused=rule.paused,
        failure=rule.failure,
        is_removed=rule.is_removed,
        wanted=book.wanted.get(rule.id, 0),
        trouble=book.trouble,
        allocations=[
            AllocationInfo(
                id=each.id,
                node=node_name(each.id),
                stage=each.stage,
                why=each.why,
                jobs=len(context.engine.attempts_on(node_name(each.id))),
                left_s=None if each.stage is Stage.QUEUED else _left_s(context, each.id),
            )
            for each in book.of(rule.id)
        ],
    )


def _left_s(context: QueueContext, allocation: int) -> float | None:
    end = context.allocations.walltimes.ends.get(node_name(allocation))
    return None if end is None or end.at is None else max(0.0, end.at - context.engine.clock())
