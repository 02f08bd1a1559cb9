"""/gpupeasy/…: GPUPeasy's routes, with the paths, field names and texts that its scripts use.

As in GPUPeasy, an error is an answer with status 200, `failed` and a message.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import msgspec

from stoker import wire
from stoker.api.endpoint import Endpoint
from stoker.api.gpupeasy import (
    NewPeasyJob,
    PeasyAdded,
    PeasyDevices,
    PeasyInfo,
    PeasyJobInfo,
    PeasyJobQuery,
    PeasyRow,
    PeasyRows,
    Word,
)
from stoker.core.lifecycle import State, is_final, is_live, is_pending
from stoker.engine import gpupeasy_batch
from stoker.errors import NotFoundError, StokerError
from stoker.service.add import add
from stoker.service.blocking_calls import call_in_thread
from stoker.service.ls import ls
from stoker.service.show import show
from stoker.service.status import status
from stoker.submit_context import build_submission, to_wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stoker.engine.context import QueueContext

_MOST = 10_000  # GPUPeasy's limit for its queue; /v1/ls has all jobs, a page at a time
_PAGE = 1000
_PENDING: list[State] = [state for state in State if is_pending(state)]
_LIVE: list[State] = [state for state in State if is_live(state)]
_FAILED: list[State] = [state for state in State if is_final(state) and state is not State.DONE]


async def add_new_job(context: QueueContext, body: NewPeasyJob) -> PeasyAdded:
    """Add one job to the queue, as GPUPeasy's addnewjob."""
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
        jobs = [{"command": job.job_command, "name": job.job_name}]
        submission = build_submission(jobs, cwd, {"log": to_wire(outfile)})
        added = await add(context, msgspec.convert(submission, wire.Submission))
    except (StokerError, msgspec.ValidationError) as error:
        return PeasyAdded(status="failed", message=str(error))
    return PeasyAdded(status="successful", message="Job added successfully", job_id=added.first)


def job_info(context: QueueContext, query: PeasyJobQuery) -> PeasyJobInfo:
    """Return one job, as GPUPeasy's jobinfo."""
    try:
        job = show(context, wire.JobQuery(query.jobID)) if query.jobID.isdecimal() else None
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


def available_devices(context: QueueContext) -> PeasyDevices:
    """Return the queue's slots, as GPUPeasy's availabledevices."""
    return PeasyDevices(status="successful", value=[slot.label for slot in status(context).slots])


def _lister(states: list[State], text: str) -> Callable[[QueueContext], Awaitable[PeasyRows]]:
    async def call(context: QueueContext) -> PeasyRows:
        rows: list[PeasyRow] = []
        after = None
        while len(rows) < _MOST:
            page = ls(context, wire.LsQuery(states=states, after=after, limit=_PAGE))
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
    """Return the exit code as Python's subprocess does: negative for a signal; -1 without a process."""
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


ENDPOINTS = (
    Endpoint("POST", "/gpupeasy/addnewjob", add_new_job, answer=PeasyAdded, body=NewPeasyJob),
    Endpoint("GET", "/gpupeasy/jobinfo/{jobID}", job_info, PeasyJobInfo, PeasyJobQuery),
    Endpoint("GET", "/gpupeasy/availabledevices", available_devices, PeasyDevices),
    *(
        Endpoint("GET", f"/gpupeasy/{name}", _lister(states, text), PeasyRows)
        for name, states, text in (
            ("deviceutilization", _LIVE, "List the running jobs with their GPUs."),
            ("scheduledjobs", _PENDING, "List the waiting jobs."),
            ("successfuljobs", [State.DONE], "List the jobs that succeeded."),
            ("failedjobs", _FAILED, "List the jobs that did not succeed."),
        )
    ),
)
