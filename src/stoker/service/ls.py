"""`ls`: pages of jobs: running jobs, then waiting jobs in their order, then ended jobs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec
from msgspec import structs

from stoker.core.lifecycle import State, is_final, is_live
from stoker.core.node import gpus_in
from stoker.engine.context import QueueContext
from stoker.engine.running_attempt import RunningAttempt
from stoker.errors import UsageError
from stoker.service.job_rows import job_of
from stoker.service.job_selection import check_project, find
from stoker.store import job_listing
from stoker.store.job_listing import ListedJob
from stoker.wire import Job, JobMark, LsQuery, Page, Selection

_ON_PENDING = (State.HELD, State.BLOCKED, State.DELAYED)
_NEVER_US = 2**62
_LOOK_AT = 5000
_NAMED = {"i": 1}
_NUMBERED = {"n": 1}
_PLACED = {"d": 1}
_ORDERED = {"r": 1, "w": 3, "s": 1, "e": 2}
_Rows = Iterator[tuple[str, ListedJob]]
"""Jobs, each with the cursor of the page that begins after it."""


class _Filter(msgspec.Struct, frozen=True):
    """Filter of jobs; `text` occurs in the name or at the beginning of the command."""

    states: list[State] = []
    project: str | None = None
    text: str | None = None
    gpu: str | None = None

    def fits(self, job: ListedJob) -> bool:
        """Whether a job matches."""
        if self.states and State(job.state) not in self.states:
            return False
        if self.project is not None and job.project != self.project:
            return False
        if self.gpu is not None and self.gpu not in gpus_in(job.slots or ""):
            return False
        if self.text is None:
            return True
        wanted = self.text.lower()
        command = job.command_head.decode("utf-8", "replace").lower()
        return wanted in (job.name or "").lower() or wanted in command


def ls(context: QueueContext, query: LsQuery) -> Page:
    """List jobs, a page at a time.

    If few jobs match, a page may have fewer jobs than its limit and still a next page: a request reads a
    limited number of jobs, so that others do not wait for it.
    """
    if query.strict and query.project is not None:
        check_project(context, query.project)
    if query.ids is not None:
        rows = _named(context, query, _read_cursor(query.after, _NAMED))
    elif query.sort == "name":
        rows = _by_name(context, query.after)
    elif query.sort == "longest":
        rows = _by_duration(context, _read_cursor(query.after, _PLACED))
    elif query.sort == "ended":
        rows = _ended(context, _read_cursor(query.after, _ORDERED))
    elif query.sort is not None:
        rows = _by_id(context, query.states, query.sort, _read_cursor(query.after, _NUMBERED))
    else:
        rows = _in_order(context, query, _read_cursor(query.after, _ORDERED))
    wanted = _Filter(query.states, query.project, query.text, query.gpu)
    jobs: list[Job] = []
    last = query.after
    for looked_at, (position, row) in enumerate(rows):
        fits = wanted.fits(row)
        if looked_at >= _LOOK_AT or (fits and len(jobs) == query.limit):
            return Page(jobs=jobs, next=last)
        if fits:
            jobs.append(foretell(context, job_of(row)))
        last = position
    return Page(jobs=jobs)


def foretell(context: QueueContext, job: Job) -> Job:
    """Add to a running job when it may end, its mark, and its reserved and used GPU memory."""
    running = context.running(job.id) if is_live(job.state) else None
    if running is None:
        return job
    left_s = context.eta.left_s(running)
    tenancy, look = context.engine.gpus.tenancy_of(running), context.look()
    seen = None if look is None else look.jobs.get(running.key)
    return structs.replace(
        job,
        mark=mark_of(context, running),
        ends_at=None if left_s is None else time.time() + left_s,
        reserved_bytes=None if tenancy is None else tenancy.tenant.reserved_bytes,
        capped=tenancy is not None and tenancy.tenant.capped,
        gpu_bytes=max(seen.mem_bytes.values()) if seen is not None and seen.mem_bytes else None,
    )


def mark_of(context: QueueContext, running: RunningAttempt) -> JobMark | None:
    """How a running attempt wastes its GPU; None if nothing is known."""
    found = context.waste.mark_of(running)
    if found is None:
        return None
    mark, age_s = found
    return JobMark(kind=mark.kind, since=time.time() - age_s, text=mark.text)


def _read_cursor(after: str | None, wanted: dict[str, int]) -> tuple[str, list[int]]:
    if after is None:
        return "", []
    kind, _, numbers = after.partition(":")
    try:
        values = [int(part) for part in numbers.split(":")]
    except ValueError:
        values = []
    if len(values) != wanted.get(kind) or any(abs(value) >= 2**63 for value in values):
        raise UsageError(f"{after[:100]!r} is no cursor of such a page")
    return kind, values


def _named(context: QueueContext, selection: Selection, cursor: tuple[str, list[int]]) -> _Rows:
    kind, values = cursor
    last = values[0] if kind == "i" else 0
    return _each(context, "i", (job for job, _state in find(context, selection) if job > last))


def _in_order(context: QueueContext, selection: Selection, cursor: tuple[str, list[int]]) -> _Rows:
    kind, values = cursor
    database, project = context.database, selection.project
    states = selection.states or list(State)
    if kind in ("", "r") and any(map(is_live, states)):
        yield from _running(context, values[0] if kind == "r" else 0)
    if kind in ("", "r", "w") and State.WAITING in states:
        for job in job_listing.waiting(database, project, values if kind == "w" else ()):
            yield f"w:{job.priority}:{job.rank}:{job.id}", job
    if kind != "e":
        pending = [state for state in _ON_PENDING if state in states]
        for job in job_listing.pending(database, pending, values[0] if kind == "s" else 0):
            yield f"s:{job.id}", job
    if any(map(is_final, states)):
        before = values if kind == "e" else [_NEVER_US, 0]
        for job in job_listing.ended(database, states, project, before):
            yield f"e:{job.ended_at_us}:{job.id}", job


def _running(context: QueueContext, after: int) -> _Rows:
    if context.engine.recorder.is_held_up:  # the last turn is not committed: show what is
        jobs = {facts.id for facts in context.jobs.live_facts()}
    else:
        jobs = {running.attempt.job for running in context.engine.slot_table.running.values()}
    return _each(context, "r", (job for job in sorted(jobs) if job > after))


def _each(context: QueueContext, kind: str, jobs: Iterable[int]) -> _Rows:
    for number in jobs:
        job = job_listing.one(context.database, number)
        if job is not None:
            yield f"{kind}:{number}", job


def _by_id(
    context: QueueContext, states: list[State], sort: str, cursor: tuple[str, list[int]]
) -> _Rows:
    newest = sort == "newest"
    start = cursor[1][0] if cursor[1] else (_NEVER_US if newest else 0)
    for job in job_listing.by_id(context.database, states, start, newest_first=newest):
        yield f"n:{job.id}", job


def _ended(context: QueueContext, cursor: tuple[str, list[int]]) -> _Rows:
    if cursor[0] not in ("", "e"):
        raise UsageError("the cursor is not one of ended jobs")
    before = cursor[1] or [_NEVER_US, 0]
    for job in job_listing.ended(context.database, list(State), None, before):
        yield f"e:{job.ended_at_us}:{job.id}", job


def _by_duration(context: QueueContext, cursor: tuple[str, list[int]]) -> _Rows:
    """Yield running jobs and those that ended last, by how long they took; a cursor is a place."""
    now_us = time.time_ns() // 1000
    ended = islice(job_listing.ended(context.database, list(State), None, [_NEVER_US, 0]), _LOOK_AT)
    found = [*(job for _position, job in _running(context, 0)), *ended]
    timed = [(_took_us(job, now_us), job) for job in found if job.started_at_us is not None]
    timed.sort(key=lambda each: (-each[0], -each[1].id))
    start = cursor[1][0] if cursor[1] else 0
    for place, (_took, job) in enumerate(timed[max(0, start) :], max(0, start) + 1):
        yield f"d:{place}", job


def _took_us(job: ListedJob, now_us: int) -> int:
    end_us = job.ended_at_us if is_final(State(job.state)) else now_us
    return (end_us or now_us) - (job.started_at_us or now_us)


def _by_name(context: QueueContext, after: str | None) -> _Rows:
    """Yield jobs by name, those without one last; `b:12:fit` is the cursor of job 12, named fit."""
    nameless_after = 0
    if after is None or after.startswith("b:"):
        number, _, name = (after or "b:0:")[2:].partition(":")
        last = _read_cursor(f"n:{number}", _NUMBERED)[1][0]
        for job in job_listing.by_name(context.database, name, last):
            yield f"b:{job.id}:{job.name}", job
    else:
        nameless_after = _read_cursor(after, _NUMBERED)[1][0]
    for job in job_listing.nameless(context.database, nameless_after):
        yield f"n:{job.id}", job
