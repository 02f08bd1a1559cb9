"""Rows of the database as the wire shows them."""

from __future__ import annotations

import shlex

from stoker.core.failure import FailureClass
from stoker.core.lifecycle import State
from stoker.core.placement import read_where
from stoker.engine.launch_spec import split_words
from stoker.store.job_listing import ListedJob
from stoker.wire import Job, to_wire


def job_of(listed: ListedJob) -> Job:
    """A job as the wire shows it in lists."""
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
    """A command in text as one would type it."""
    if form == "argv":
        words = [word.decode("utf-8", "replace") for word in split_words(command)]
        return shlex.join(words)
    return command.decode("utf-8", "replace")


def ending(status: int | None) -> tuple[int | None, int | None]:
    """A wait status as an exit code or a signal."""
    if status is None:
        return None, None
    number = status & 0x7F
    return (None, number) if number else (status >> 8, None)


def class_of(failure: str | None) -> FailureClass | None:
    """The class of a failure; one that this version does not know is as good as none."""
    known = failure in FailureClass.__members__.values()
    return FailureClass(failure) if known else None


def seconds(us: int | None) -> float | None:
    """A time as the wire has it."""
    return None if us is None else us / 1e6
