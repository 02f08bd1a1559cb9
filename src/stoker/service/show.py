"""`show`: everything about one job."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from stoker.core.job import Attempt
from stoker.core.lifecycle import State
from stoker.core.usage import AttemptUse
from stoker.engine.context import QueueContext
from stoker.engine.launch_spec import log_path, read_environment, split_words
from stoker.service.job_rows import COLUMNS, TABLES, class_of, ending, job_of, seconds
from stoker.service.job_selection import find_one
from stoker.service.ls import foretell
from stoker.store.jobs import decode_use
from stoker.store.queue_jobs import Facts
from stoker.store.sharing_records import SharingRecords
from stoker.wire import AttemptInfo, Git, JobDetail, JobOptions, Need, to_wire

_SECRET = re.compile(r"(?i)KEY|TOKEN|SECRET|PASS|_PWD$|_PAT$|CRED|AUTH|COOKIE|PRIVATE|DSN")
_URL_SECRET = re.compile(r"(://)[^/\s]+@")
_ATTEMPT = (
    "SELECT {}, {}, slots, pid, started_at_us, ended_at_us, status, reason, cpu_us, max_rss_kb,"
    " failure, gpu_use FROM {} WHERE {} = ?"
)
_EARLIER = _ATTEMPT.format("number", "outcome", "earlier_attempt", "job") + " ORDER BY number"
_LATEST = _ATTEMPT.format("attempt", "state", "job", "id")
_SUBMISSION = (
    "SELECT shell, snapshot, git_commit, git_dirty, user, host, environment"
    " FROM submission WHERE id = ?"
)
_TAIL_BYTES = 8192


def show(context: QueueContext, job: str) -> JobDetail:
    """All that is known, the environment with its secrets hidden."""
    number = find_one(context, job)
    execute = context.database.execute
    sql = f"SELECT {COLUMNS} FROM {TABLES} WHERE job.id = ?"  # noqa: S608 - our own columns
    brief = foretell(context, job_of(execute(sql, (number,)).fetchone()))
    facts = context.jobs.facts(number)
    attempts = _attempts(context, facts)
    common = execute(_SUBMISSION, (facts.submission,)).fetchone()
    shell, snapshot, commit, dirty, user, host, environment = common
    words = split_words(facts.command) if facts.form == "argv" else None
    return JobDetail(
        **{name: getattr(brief, name) for name in brief.__struct_fields__},
        argv=[to_wire(word) for word in words] if words else None,
        line=None if words else to_wire(facts.command),
        script=facts.form == "script",
        shell=shell,
        env=redact(read_environment(context.jobs.environment(environment))),
        timeout_s=facts.timeout_s,
        retries=facts.retries or 0,
        share=facts.share,
        gpu_mem_bytes=facts.gpu_mem,
        git=Git(commit=commit, dirty=bool(dirty)) if commit else None,
        snapshot=None if facts.fresh else snapshot,
        user=user,
        host=host,
        last_line=_last_line(context, facts),
        log=None if facts.log is None else to_wire(facts.log),
        needs=[
            Need(id=need.id, state=need.state, any=need.any)
            for need in context.pending.needs_of(number)
        ],
        options=JobOptions(**msgspec.structs.asdict(facts.request.options)),
        attempts=attempts,
    )


def _attempts(context: QueueContext, facts: Facts) -> list[AttemptInfo]:
    rows = context.database.execute(_EARLIER, (facts.id,)).fetchall()
    latest = context.database.execute(_LATEST, (facts.id,)).fetchone()
    if latest[0] > len(rows):
        rows.append(latest)
    reserved = SharingRecords(context.database).reserved(facts.id)
    return [_attempt(context, facts, row, reserved.get(row[0])) for row in rows]


def _attempt(
    context: QueueContext, facts: Facts, row: Sequence[Any], reserved: int | None
) -> AttemptInfo:
    exit_code, signum = ending(row[6])
    return AttemptInfo(
        number=row[0],
        state=State(row[1]),
        slots=row[2] or None,
        pid=row[3],
        started_at=seconds(row[4]),
        ended_at=seconds(row[5]),
        exit_code=exit_code,
        signal=signum,
        reason=row[7],
        cpu_s=seconds(row[8]),
        max_rss_bytes=None if row[9] is None else row[9] * 1024,
        log=to_wire(os.fsencode(log_path(context.home, facts, row[0]))),
        reserved_bytes=reserved,
        failure=class_of(row[10]),
        gpu_use=decode_use(row[11]) or _use_now(context, facts, row[0]),
    )


def _use_now(context: QueueContext, facts: Facts, number: int) -> AttemptUse | None:
    """What an attempt that runs has used so far."""
    look = context.look()
    job = None if look is None else look.jobs.get(Attempt(facts.id, number).key)
    return None if job is None else job.so_far


def redact(env: dict[str, str]) -> dict[str, str]:
    """An environment that may be shown: what looks like a secret is hidden."""
    return {
        _text(name): "***" if _SECRET.search(name) else _text(_URL_SECRET.sub(r"\1***@", value))
        for name, value in sorted(env.items())
    }


def _text(text: str) -> str:
    return os.fsencode(text).decode("utf-8", "replace")


def _last_line(context: QueueContext, facts: Facts) -> str | None:
    if not facts.attempt:
        return None
    try:
        # Without waiting for a writer, where the log is a pipe.
        fd = os.open(log_path(context.home, facts, facts.attempt), os.O_RDONLY | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            file.seek(max(0, os.fstat(fd).st_size - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    return next((line for line in reversed(lines) if line.strip()), None)
