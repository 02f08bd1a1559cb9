"""Large submissions in parts that fit into a request."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stoker import wire
from stoker.submit_context import new_request_id

# Half of what the daemon takes: the environment and the escaping of odd characters come on top.
_MAX_BYTES = 32 * 1024 * 1024


def split_submission(submission: wire.Submission) -> Iterator[wire.Submission]:
    """The submission, or its jobs over several, each with a request id of its own.

    The same submission is always split into the same parts with the same ids, so that one that is
    sent again is recognised part by part.
    """
    request_id = submission.request_id or new_request_id()
    for number, jobs in enumerate(_parts(submission.jobs)):
        own_id = request_id if len(jobs) == len(submission.jobs) else _part_id(request_id, number)
        yield msgspec.structs.replace(submission, request_id=own_id, jobs=jobs)


def _parts(jobs: list[wire.NewJob]) -> Iterator[list[wire.NewJob]]:
    first = size = 0
    for index, job in enumerate(jobs):
        job_bytes = _size_of(job)
        if index > first and (index - first >= wire.MAX_JOBS or size + job_bytes > _MAX_BYTES):
            yield jobs[first:index]
            first, size = index, 0
        size += job_bytes
    yield jobs[first:]


def _size_of(job: wire.NewJob) -> int:
    if type(job.command) is str:
        size = 104 + len(job.command)
    else:
        words = job.command if isinstance(job.command, list) else [job.command]
        size = 100 + sum(4 + len(word if isinstance(word, str) else word.b64) for word in words)
    run = job.run
    return size if run is None else size + 300 + 2 * len(run.params)


def _part_id(request_id: str, number: int) -> str:
    import hashlib

    return hashlib.sha256(f"{request_id}/{number}".encode()).hexdigest()[:32]
