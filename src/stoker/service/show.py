"""`show`: all details of one job."""

from __future__ import annotations

import os
import re

import msgspec

from stoker.core.job import Attempt, Ending
from stoker.core.lifecycle import State
from stoker.core.usage import AttemptUse
from stoker.engine.context import QueueContext
from stoker.engine.launch_spec import log_path, read_environment, split_words
from stoker.service.job_rows import class_of, ending, job_of, seconds
from stoker.service.job_selection import find_one
from stoker.service.ls import foretell
from stoker.store import job_listing
from stoker.store.attempt_history import RecordedAttempt, attempts_of
from stoker.store.jobs import decode_use
from stoker.store.queue_jobs import Facts
from stoker.store.sharing_records import SharingRecords
from stoker.store.submissions import SubmissionOrigin, origin_of
from stoker.store.sweep_records import sweep_of
from stoker.wire import AttemptInfo, Git, JobDetail, JobOptions, JobQuery, Need, SweepName, to_wire

_SECRET = re.compile(r"(?i)KEY|TOKEN|SECRET|PASS|_PWD$|_PAT$|CRED|AUTH|COOKIE|PRIVATE|DSN")
_URL_SECRET = re.compile(r"(://)[^/\s]+@")
_TAIL_BYTES = 8192


def show(context: QueueContext, query: JobQuery) -> JobDetail:
    """Return everything about one job; secrets in the environment are hidden."""
    number = find_one(context, query.job)
    listed = job_listing.one(context.database, number)
    assert listed is not None
    brief = foretell(context, job_of(listed))
    facts = context.jobs.facts(number)
    surroundings = context.jobs.surroundings(facts.submission)
    origin = origin_of(context.database, facts.submission)
    words = split_words(facts.command) if facts.form == "argv" else None
    return JobDetail(
        **{name: getattr(brief, name) for name in brief.__struct_fields__},
        argv=[to_wire(word) for word in words] if words else None,
        line=None if words else to_wire(facts.command),
        script=facts.form == "script",
        shell=surroundings.shell,
        env=redact(read_environment(context.jobs.environment(surroundings.environment))),
        timeout_s=facts.request.timeout_s,
        retries=facts.request.retries,
        share=facts.request.share,
        gpu_mem_bytes=facts.request.gpu_mem,
        cpus=facts.request.cpus,
        mem_bytes=facts.request.mem_bytes,
        git=_git(origin),
        snapshot=None if facts.fresh else surroundings.snapshot,
        user=origin.user,
        host=origin.host,
        last_line=_last_line(context, facts),
        reserved_because=_reserved_because(context, number),
        log=None if facts.log is None else to_wire(facts.log),
        needs=[
            Need(id=need.id, state=need.state, any=need.any)
            for need in context.pending.needs_of(number)
        ],
        options=JobOptions(**msgspec.structs.asdict(facts.request.options)),
        attempts=_attempts(context, facts),
        sweep=_sweep(context, number),
        ending=_ending(context, number),
    )


def _sweep(context: QueueContext, job: int) -> SweepName | None:
    found = sweep_of(context.database, job)
    return None if found is None else SweepName(name=found[0], cwd=to_wire(found[1]))


def _reserved_because(context: QueueContext, job: int) -> str | None:
    """Return where the amount of memory that is set aside for a running job comes from."""
    running = context.running(job)
    tenancy = None if running is None else context.engine.gpus.tenancy_of(running)
    return None if tenancy is None else tenancy.tenant.because or None


def _ending(context: QueueContext, job: int) -> Ending | None:
    running = context.running(job)
    return None if running is None else running.ending


def _git(origin: SubmissionOrigin) -> Git | None:
    if origin.git_commit is None:
        return None
    return Git(commit=origin.git_commit, dirty=bool(origin.git_dirty))


def _attempts(context: QueueContext, facts: Facts) -> list[AttemptInfo]:
    reserved = SharingRecords(context.database).reserved(facts.id)
    return [
        _attempt(context, facts, each, reserved.get(each.number))
        for each in attempts_of(context.database, facts.id)
    ]


def _attempt(
    context: QueueContext, facts: Facts, found: RecordedAttempt, reserved: int | None
) -> AttemptInfo:
    exit_code, signum = ending(found.status)
    return AttemptInfo(
        number=found.number,
        state=State(found.state),
        slots=found.slots or None,
        pid=found.pid,
        started_at=seconds(found.started_at_us),
        ended_at=seconds(found.ended_at_us),
        exit_code=exit_code,
        signal=signum,
        reason=found.reason,
        cpu_s=seconds(found.cpu_us),
        max_rss_bytes=None if found.max_rss_kb is None else found.max_rss_kb * 1024,
        log=to_wire(os.fsencode(log_path(context.home, facts, found.number))),
        reserved_bytes=reserved,
        failure=class_of(found.failure),
        gpu_use=decode_use(found.gpu_use) or _use_now(context, facts, found.number),
    )


def _use_now(context: QueueContext, facts: Facts, number: int) -> AttemptUse | None:
    """Return what a running attempt has used so far."""
    look = context.look()
    job = None if look is None else look.jobs.get(Attempt(facts.id, number).key)
    return None if job is None else job.so_far


def redact(env: dict[str, str]) -> dict[str, str]:
    """Hide values that look like secrets in an environment."""
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
        # O_NONBLOCK: if the log is a pipe, opening it must not wait for a writer.
        fd = os.open(log_path(context.home, facts, facts.attempt), os.O_RDONLY | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            file.seek(max(0, os.fstat(fd).st_size - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    return next((line for line in reversed(lines) if line.strip()), None)
