"""Jobs of the queue that make Python calls: waiting for them, and how they ended."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from stoker.client.client import Client
from stoker.core.lifecycle import State
from stoker.errors import NotFoundError
from stoker.task.job import Job
from stoker.wire import Job as QueuedJob
from stoker.wire import Selection, to_wire

_AT_ONCE = 500  # jobs named in one request


def wait_for_jobs(client: Client, ids: Iterable[int]) -> dict[int, QueuedJob]:
    """Wait until these jobs have ended, and return them. A job that was removed is missing."""
    wanted = sorted(ids)
    for selection in _selections(wanted):
        for _progress in client.wait(selection):
            pass
    return find_jobs(client, wanted)


def find_jobs(client: Client, ids: Iterable[int]) -> dict[int, QueuedJob]:
    """Return these jobs. A job that was removed is missing."""
    found: dict[int, QueuedJob] = {}
    for selection in _selections(ids):
        found |= {job.id: job for job in client.jobs(selection)}
    return found


def makes_call(client: Client, number: int, path: str) -> bool:
    """Whether a job of the queue makes the call of a file; its number may belong to another job by now."""
    try:
        argv = client.show(number).argv
    except NotFoundError:
        return False
    return argv is not None and argv[-1] == to_wire(os.fsencode(path))


def describe_end(job: QueuedJob | None, number: int, name: str) -> Job:
    """Return how a job ended, as `load_result` takes it; None is a job that was removed."""
    if job is None:
        return Job(number=number, command=name, state=State.LOST.value, reason="it was removed")
    reason = f"{job.reason or job.state.value} (stoker log {number})"
    return Job(
        number=number,
        command=f"job {number}, {name}",
        state=job.state.value,
        reason=None if job.state is State.DONE else reason,
    )


def spell_ids(ids: Iterable[int]) -> str:
    """Write ids as they are typed: `1-3,7`."""
    spans: list[list[int]] = []
    for number in sorted(ids):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _selections(ids: Iterable[int]) -> Iterator[Selection]:
    known = sorted(ids)
    for first in range(0, len(known), _AT_ONCE):
        yield Selection(ids=spell_ids(known[first : first + _AT_ONCE]))
