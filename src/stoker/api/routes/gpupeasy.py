"""/gpupeasy/…: GPUPeasy's own routes, with the names and words that its scripts know.

What fails is told as it always was: with status 200, `failed` and a message.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import msgspec

from stoker import wire
from stoker.api.blocking_calls import call_in_thread
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.api.gpupeasy import (
    JobQuery,
    NewPeasyJob,
    PeasyAdded,
    PeasyDevices,
    PeasyInfo,
    PeasyJobInfo,
    PeasyRow,
    PeasyRows,
    Word,
)
from stoker.core.lifecycle import State, is_final, is_live, is_pending
from stoker.engine import gpupeasy_batch
from stoker.errors import NotFoundError, StokerError
from stoker.service import add, ls, show, status
from stoker.submit_context import new_request_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stoker.engine.context import QueueContext

_MOST = 10_000  # as many jobs as GPUPeasy could queue; /v1/ls has all, a page at a time
_PAGE = 1000
_PENDING: list[State] = [state for state in State if is_pending(state)]
_LIVE: list[State] = [state for state in State if is_live(state)]
_FAILED: list[State] = [state for state in State if is_final(state) and state is not State.DONE]


async def add_new_job(context: QueueContext, _query: NoQuery, body: NewPeasyJob) -> PeasyAdded:
    """Put one job into the queue, as GPUPeasy's addnewjob."""
    job = body.job
    if job is None:
        return PeasyAdded(status="failed", message="Key 'job' not found")
    if job.out_file is None or job.job_name is None or job.job_command is None:
        keys = {"outFile": job.out_file, "jobName": job.job_name, "jobCommand": job.job_command}
        missing = next(key for key, value in keys.items() if value is None)
        return PeasyAdded(status="failed", message=f"Key '{missing}' not found")
    cwd = os.path.expanduser(job.cwd).encode("utf-8", "surrogatepass")
    outfile = os.path.join(cwd, job.out_file.encode("utf-8", "surrogatepass"))
    command = " ".join(job.job_command) if isinstance(job.job_command, list) else job.job_command
    fault: object = gpupeasy_batch.fault_of_fields(
        job.job_name.encode(), job.out_file.encode(), command.encode()
    )
    fault = fault or await call_in_thread(gpupeasy_batch.fault_of_file, outfile, set())
    if fault is not None:
        return PeasyAdded(status="failed", message=str(fault))
    try:
        added = await add.add(
            context,
            wire.Submission(
                request_id=new_request_id(),
                jobs=[wire.NewJob(command=job.job_command, name=job.job_name)],  # type: ignore[arg-type]
                log=wire.to_wire(outfile),
                cwd=wire.to_wire(cwd),
                env={name: value for name, value in os.environ.items() if name != "STOKER_PART"},
            ),
        )
    except StokerError as error:
        return PeasyAdded(status="failed", message=str(error))
    return PeasyAdded(status="successful", message="Job added successfully", job_id=added.first)


async def job_info(context: QueueContext, query: JobQuery, _body: None) -> PeasyJobInfo:
    """Tell about one job, as GPUPeasy's jobinfo."""
    try:
        job = show.show(context, query.jobID) if query.jobID.isdecimal() else None
    except NotFoundError:
        job = None
    if job is None:
        return PeasyJobInfo(status="failed", value=PeasyInfo())
    last = job.attempts[-1] if job.attempts else None
    outfile = last.log if last is not None else job.log
    info = PeasyInfo(
        jobid=job.id,
        job_name=job.name or str(job.id),
        job_command=job.command,
        out_file="" if outfile is None else wire.from_wire(outfile).decode("utf-8", "replace"),
        status=_word(job.state),
        return_code=_return_code(job),
        pid=last.pid if last is not None and is_live(job.state) else None,
    )
    return PeasyJobInfo(status="successful", value=info)


async def available_devices(context: QueueContext, _query: NoQuery, _body: None) -> PeasyDevices:
    """Name the queue's slots, as GPUPeasy's availabledevices."""
    return PeasyDevices(
        status="successful", value=[slot.label for slot in status.status(context).slots]
    )


def _lister(
    states: list[State], text: str
) -> Callable[[QueueContext, NoQuery, None], Awaitable[PeasyRows]]:
    async def call(context: QueueContext, _query: NoQuery, _body: None) -> PeasyRows:
        rows: list[PeasyRow] = []
        after = None
        while len(rows) < _MOST:
            page = ls.ls(
                context, wire.Selection(states=states), text=None, after=after, limit=_PAGE
            )
            rows += map(_row, page.jobs)
            after = page.next
            if after is None:
                break
            await asyncio.sleep(0)
        return PeasyRows(status="successful", value=rows)

    call.__doc__ = text
    return call


def _row(job: wire.Job) -> PeasyRow:
    return PeasyRow(
        job_id=job.id,
        job_name=job.name or str(job.id),
        job_command=job.command,
        gpu=job.slots if is_live(job.state) else None,
        return_code=_return_code(job) if is_final(job.state) else None,
    )


def _return_code(job: wire.Job) -> int | None:
    """As Python's subprocess tells it: negative for a signal, -1 for what never was a process."""
    if not is_final(job.state):
        return None
    if job.exit_code is not None:
        return job.exit_code
    return -1 if job.signal is None else -job.signal


def _word(state: State) -> Word:
    if is_pending(state):
        return "Scheduled"
    if is_live(state):
        return "Running"
    return "Succeeded" if state is State.DONE else "Failed"


def _get(path: str, call: Any, answer: Any, query: type[msgspec.Struct] = NoQuery) -> Any:
    return Endpoint(
        method="GET",
        path=f"/gpupeasy/{path}",
        call=call,
        query=query,
        body=type(None),
        answer=answer,
        lets_in=OWNER,
    )


ENDPOINTS: tuple[Endpoint[Any, Any], ...] = (
    Endpoint(
        method="POST",
        path="/gpupeasy/addnewjob",
        call=add_new_job,
        query=NoQuery,
        body=NewPeasyJob,
        answer=PeasyAdded,
        lets_in=OWNER,
    ),
    _get("jobinfo/{jobID}", job_info, PeasyJobInfo, JobQuery),
    _get("availabledevices", available_devices, PeasyDevices),
    _get("deviceutilization", _lister(_LIVE, "List what runs, and where."), PeasyRows),
    _get("scheduledjobs", _lister(_PENDING, "List what waits."), PeasyRows),
    _get("successfuljobs", _lister([State.DONE], "List what succeeded."), PeasyRows),
    _get("failedjobs", _lister(_FAILED, "List what did not succeed."), PeasyRows),
)
