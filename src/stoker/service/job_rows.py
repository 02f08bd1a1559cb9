"""Rows of the database as the wire shows them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from stoker.core.failure import FailureClass
from stoker.core.lifecycle import State
from stoker.core.placement import read_where
from stoker.engine.launch_spec import split_words
from stoker.wire import Job, to_wire

_SHOWN_BYTES = 1000
# Of the command only its beginning: a page of the longest ones would not fit into memory.
COLUMNS = (
    f"job.id, name, project, state, substr(command, 1, {_SHOWN_BYTES}), form, class.slots, priority,"
    " attempt, job.slots, reason, status, submitted_at_us, started_at_us, ended_at_us, rank,"
    " begin_at_us, submission.cwd, failure, class.place"
)
TABLES = (
    "job JOIN class ON class.id = job.class LEFT JOIN submission ON submission.id = job.submission"
)


def job_of(row: Sequence[Any]) -> Job:
    """A job as a list shows it, from a row of COLUMNS."""
    exit_code, signum = ending(row[11])
    where = read_where(row[19])
    return Job(
        id=row[0],
        name=row[1],
        project=row[2],
        state=State(row[3]),
        command=text_of(row[4], row[5]),
        gpus=row[6],
        priority=row[7],
        attempt=row[8],
        slots=row[9] or None,
        reason=row[10],
        exit_code=exit_code,
        signal=signum,
        begin_at=seconds(row[16]),
        cwd=to_wire(row[17] or b""),
        failure=class_of(row[18]),
        submitted_at=seconds(row[12]),
        started_at=seconds(row[13]),
        ended_at=seconds(row[14]),
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
