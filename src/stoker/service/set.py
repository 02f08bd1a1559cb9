"""`set`: changes the settings of jobs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from stoker.core.job import Request
from stoker.core.lifecycle import State, is_final, is_live
from stoker.core.placement import PlacementRule, make_where, read_where, write_where
from stoker.core.selector import check_name
from stoker.core.sharing.rules import Mode
from stoker.engine.context import QueueContext
from stoker.engine.running_attempt import RunningAttempt
from stoker.errors import UsageError
from stoker.service.add import check_gpu_mem
from stoker.service.bulk_change import change_each
from stoker.service.dependencies import read_needs, refuse_circle
from stoker.service.pending_states import settle
from stoker.service.placement_check import check_host, check_where
from stoker.store.queue_jobs import Facts
from stoker.wire import Changed, Set, from_wire

# Settings that can be changed while a job is running.
_OF_RUNNING = {"name", "priority", "retries", "timeout_s"}
_OF_PLACE = {"nodes", "on", "node_labels"}
# Settings that other fields of JobClass hold.
_OF_CLASS = {
    "gpus": "slots",
    "timeout_s": "timeout_s",
    "project": "project",
    "share": "share",
    "gpu_mem_bytes": "gpu_mem",
    "cpus": "cpus",
    "mem_bytes": "mem_bytes",
}


async def set_(context: QueueContext, order: Set) -> Changed:
    """Change settings of jobs: all of waiting jobs, some of running jobs."""
    given = {name: getattr(order.to, name) for name in order.to.__struct_fields__}
    values: dict[str, Any] = {
        name: value for name, value in given.items() if value is not msgspec.UNSET
    }
    if not values:
        raise UsageError("nothing to set: give name=value, such as priority=5")
    _check(context, values)

    def change(job: int, state: State) -> str | None:
        if is_final(state) and state is not State.SKIPPED:
            return f"job {job} is {state.value}: it cannot be changed any more"
        late = values.keys() - _OF_RUNNING
        if is_live(state) and late:
            return f"job {job} is {state.value}: only {_list(_OF_RUNNING)} can be changed"
        facts = context.jobs.facts(job)
        try:
            _check_fit(context, facts, values)
        except UsageError as error:
            return f"job {job}: {error}"
        _change(context, facts, values)
        if not is_live(state):
            settle(context, job)
        return None

    def take_over(running: RunningAttempt) -> None:
        facts = context.jobs.facts(running.attempt.job)
        running.entry.facts = facts
        running.entry.request = facts.request
        if "timeout_s" in values:
            context.engine.termination.renew_deadline(running)

    return await change_each(
        context, order, change, fits=lambda state: not is_final(state), then=take_over
    )


def _list(names: Iterable[str]) -> str:
    """Join names of settings as users type them: `name, priority and timeout`."""
    typed = {"nodes": "node", "node_labels": "node_label"}
    words = sorted(typed.get(name, name.removesuffix("_s").removesuffix("_at")) for name in names)
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _check(context: QueueContext, values: dict[str, object]) -> None:
    for kind in ("name", "project"):
        value = values.get(kind)
        if isinstance(value, str):
            check_name(f"the {kind}", value)
    memory = values.get("gpu_mem_bytes")
    check_gpu_mem(context, memory if isinstance(memory, int) else None)
    if values.get("share") == Mode.NEVER.value:
        values["share"] = None
    gpus, most = values.get("gpus"), context.engine.slot_table.slots_left()
    if isinstance(gpus, int) and gpus > most:
        raise UsageError(f"{gpus} GPUs are more than the {most} of this queue")
    begin_at = values.get("begin_at")
    if isinstance(begin_at, float) and begin_at <= time.time():
        raise UsageError("that time lies in the past")


def _check_fit(context: QueueContext, facts: Facts, values: dict[str, Any]) -> None:
    """Refuse settings with which a job can run nowhere."""
    if values.keys() & {"gpus", *_OF_PLACE}:
        check_where(context, _where(facts, values), values.get("gpus", facts.request.slots))
    if values.keys() & {"cpus", "mem_bytes", *_OF_PLACE}:
        check_host(context, _changed_request(facts, values))


def _changed_request(facts: Facts, values: dict[str, Any]) -> Request:
    """Return the request of a job with the new values."""
    changed = {name: values[key] for key, name in _OF_CLASS.items() if key in values}
    return replace(facts.request, **changed, where=write_where(_where(facts, values)))


def _where(facts: Facts, values: dict[str, Any]) -> PlacementRule:
    """Return the placement rule with the new values; the others stay."""
    known = read_where(facts.request.where)
    return make_where(
        values.get("nodes", known.nodes),
        values.get("on", known.on),
        values.get("node_labels", dict(known.labels)),
    )


def _change(context: QueueContext, facts: Facts, values: dict[str, Any]) -> None:
    columns: dict[str, object] = {}
    for name in ("name", "priority", "retries"):
        if name in values:
            columns[name] = values[name]
    if "command" in values:
        columns["command"] = _bytes(values["command"], "the command")
        columns["form"] = None if facts.form == "argv" else facts.form
    if "log" in values:
        columns["log"] = None if values["log"] is None else _log(context, facts, values["log"])
    if "begin_at" in values:
        begin_at = values["begin_at"]
        columns["begin_at_us"] = int(begin_at * 1e6) if isinstance(begin_at, float) else None
    if values.keys() & {*_OF_CLASS, *_OF_PLACE}:
        columns["class"] = context.jobs.class_of(_changed_request(facts, values))
    if columns:
        context.jobs.alter(facts.id, columns)
    if "command" in columns:
        context.ranks.place(facts.id, facts.id)
    if values.keys() & {"after", "after_any"}:
        _change_needs(context, facts.id, values)


def _change_needs(context: QueueContext, job: int, values: dict[str, object]) -> None:
    """Replace the jobs that a job waits for; `after` or `after_any` stays if it is not given."""
    needs = dict(read_needs(context, _text(values.get("after")), _text(values.get("after_any"))))
    for need in context.pending.needs_of(job):
        if ("after_any" if need.any else "after") not in values:
            needs.setdefault(need.id, need.any)
    refuse_circle(context, job, needs)
    context.pending.unlink(job)
    for needed, any_end in sorted(needs.items()):
        context.pending.link(job, needed, any_end)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _log(context: QueueContext, facts: Facts, value: object) -> bytes:
    folder = context.jobs.surroundings(facts.submission).cwd
    return os.path.join(folder, _bytes(value, "the path of the log"))


def _bytes(value: object, what: str) -> bytes:
    try:
        data = from_wire(value)  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageError(f"{what} is no base64: {error}") from None
    if not data.strip() or b"\0" in data:
        raise UsageError(f"{what} is empty or holds a NUL byte")
    return data
