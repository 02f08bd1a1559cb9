"""`batch`: parses a text with several jobs, so that a user can check them before they are added."""

from __future__ import annotations

from stoker.engine.command_reader import Splitter
from stoker.engine.context import QueueContext
from stoker.engine.gpupeasy_batch import is_batch, parse_batch
from stoker.errors import UsageError
from stoker.service.blocking_calls import call_in_thread
from stoker.wire import MAX_JOBS, BatchJobs, BatchText, NewJob, to_wire


async def batch(_context: QueueContext, text: BatchText) -> BatchJobs:
    """Return the jobs of a text, and all errors in it. Nothing is added."""
    if not text.cwd.startswith("/") or "\0" in text.cwd:
        raise UsageError("cwd is not an absolute path", field="cwd")
    return await call_in_thread(_read_batch, text)  # it checks files, perhaps of a slow file server


def _read_batch(batch: BatchText) -> BatchJobs:
    text = batch.text.encode()
    if batch.form == "gpupeasy" or (batch.form == "auto" and is_batch(text)):
        found, errors = parse_batch(text, batch.cwd.encode())
        jobs = [
            NewJob(
                name=job.name.decode("utf-8", "replace"),
                log=to_wire(job.outfile),
                command=to_wire(job.command),
            )
            for job in found
        ]
    else:
        splitter = Splitter(null=False)
        lines = splitter.feed(text) + splitter.close()
        jobs = [NewJob(command=to_wire(line)) for line in lines]
        errors = [
            f"job {number}: it holds a NUL byte"
            for number, line in enumerate(lines, start=1)
            if b"\0" in line
        ]
        if not jobs:
            errors = ["no job in it: write one command a line"]
    if len(jobs) > MAX_JOBS:
        errors.append(f"{len(jobs):,} jobs, and {MAX_JOBS:,} can be added at once: add a part")
        jobs = []
    return BatchJobs(jobs=jobs, errors=errors)
