"""Conversion of database rows to the types of the wire."""

from __future__ import annotations

import shlex

from stoker.core.failure import FailureClass
from stoker.core.lifecycle import State
from stoker.core.placement import read_where
from stoker.engine.launch_spec import split_words
from stoker.store.job_listing import ListedJob
from stoker.wire import Job, to_wire


def job_of(listed: ListedJob) -> Job:
    """Convert a listed job."""
    exit_code, signum = ending(listed.status)
    where = read_where(listed.where)
    return Job(
        id=listed.id,
        name=listed.name,
        project=listed.project,
        state=State(listed.state),
        command=text_of(listed.command_head, listed.form),
        gpus=listed.gpus,
        priority=listed.priority,
        attempt=listed.attempt,
        slots=listed.slots or None,
        reason=listed.reason,
        exit_code=exit_code,
        signal=signum,
        begin_at=seconds(listed.begin_at_us),
        cwd=to_wire(listed.cwd or b""),
        failure=class_of(listed.failure),
        submitted_at=seconds(listed.submitted_at_us),
        started_at=seconds(listed.started_at_us),
        ended_at=seconds(listed.ended_at_us),
        nodes=list(where.nodes),
        on=where.on,
        node_labels=dict(where.labels),
    )


def text_of(command: bytes, form: str | None) -> str:
    """Return a command as one would type it."""
    if form == "argv":
        words = [word.decode("utf-8", "replace") for word in split_words(command)]
        return shlex.join(words)
    return command.decode("utf-8", "replace")


def ending(status: int | None) -> tuple[int | None, int | None]:
    """Return the exit code or the signal of a wait status."""
    if status is None:
        return None, None
    number = status & 0x7F
    return (None, number) if number else (status >> 8, None)


def class_of(failure: str | None) -> FailureClass | None:
    """Return a failure class; None for one that this version does not know."""
    known = failure in FailureClass.__members__.values()
    return FailureClass(failure) if known else None


def seconds(us: int | None) -> float | None:
    """Convert microseconds to seconds."""
    return None if us is None else us / 1e6
