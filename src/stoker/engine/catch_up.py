"""Updates a database that is older than the supervisor's journal, as after the restore of a backup.

- An attempt of a job in the database is recorded there, and ends with its true status.
- An attempt of a job that is not in the database runs to its end. Its GPUs stay occupied until then.
- Ids that the supervisor or a log in the home still uses are not given out again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from stoker.core.job import Attempt, Outcome
from stoker.core.lifecycle import Event, State, is_final, is_live
from stoker.engine.context import QueueContext
from stoker.executors.contract import Ended, Lost, Refused, Report, Started, Synced
from stoker.store.queue_jobs import QueueJobs

_OVERTAKEN = "stoker.db was restored from before its end"


def catch_up(context: QueueContext, reports: Sequence[Report]) -> list[str]:
    """Record the attempts that the supervisor reports.

    Returns the keys of running attempts whose GPUs are not in the database.
    """
    keys = {key for report in reports if isinstance(report, Synced) for key in report.keys}
    refused = {report.key for report in reports if isinstance(report, Refused)}
    over = {report.key for report in reports if isinstance(report, Ended | Lost)}
    attempts = [Attempt.from_key(key) for key in keys - refused]
    attempts.sort(key=lambda attempt: (attempt.job, attempt.number))
    behind = [attempt for attempt in attempts if _is_missing(context.jobs, attempt)]
    past = max([_newest_logged(context.home), *(attempt.job for attempt in attempts)])
    if behind or past > context.jobs.last_id:
        with context.database.transaction(durable=True):
            context.jobs.advance_ids(past)
            for attempt in behind:
                _enter(context.jobs, attempt)
    if behind:
        numbers = ", ".join(dict.fromkeys(str(attempt.job) for attempt in behind))
        context.publisher.on_notice(
            f"stoker.db is older than what ran last: attempts of job {numbers} were entered into it"
        )
    running = [attempt for attempt in attempts if attempt.key not in over]
    unknown = [attempt for attempt in running if not _is_live(context.jobs, attempt)]
    _report_unknown(context, unknown, reports)
    live = {facts.id for facts in context.jobs.live_facts() if facts.slots}
    return [each.key for each in running if each in unknown or each.job not in live]


def _report_unknown(
    context: QueueContext, unknown: Sequence[Attempt], reports: Sequence[Report]
) -> None:
    """Report running attempts that are not in the database, and what happens to them."""
    pids = {report.key: report.pid for report in reports if isinstance(report, Started)}
    # An engine of several machines ends what its database does not know: a node may have been given up.
    rule = (
        "it keeps its GPU until it ends; stoker daemon stop --kill ends it"
        if context.nodes is None
        else "it is ended, for the queue reaches over several machines"
    )
    for attempt in unknown:
        process = f"process {pids[attempt.key]}" if attempt.key in pids else "a process"
        context.publisher.on_notice(
            f"{process} of job {attempt.job} runs, and stoker.db does not know it: {rule}"
        )


def _is_missing(jobs: QueueJobs, attempt: Attempt) -> bool:
    """Whether the database has the job but not this attempt."""
    number = jobs.attempt_of(attempt.job)
    return number is not None and attempt.number > number


def _is_live(jobs: QueueJobs, attempt: Attempt) -> bool:
    same = jobs.attempt_of(attempt.job) == attempt.number
    return same and is_live(jobs.state_of(attempt.job))


def _enter(jobs: QueueJobs, attempt: Attempt) -> None:
    """Record that an attempt has begun, without its GPU: only the supervisor knows that."""
    job = attempt.job
    if is_live(jobs.state_of(job)):
        jobs.end(job, Outcome(event=Event.LOSE, reason=_OVERTAKEN))
    state = jobs.state_of(job)
    if is_final(state):
        jobs.retry(job, Event.RERUN if state is State.DONE else Event.RETRY)
    elif state is not State.WAITING:
        jobs.move_pending(job, Event.READY)
    jobs.claim(job, "")
    jobs.alter(job, {"attempt": attempt.number})


def _newest_logged(home: str) -> int:
    """The highest id of a job that has left a log in the home; 0 if none has."""
    folder = os.path.join(home, "logs")
    for group in sorted(_numbers(folder), reverse=True):
        ids = _numbers(os.path.join(folder, str(group)))
        if ids:
            return max(ids)
    return 0


def _numbers(folder: str) -> list[int]:
    """The numbers with which the names in a folder begin."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    heads = [name.partition(".")[0] for name in names]
    return [int(head) for head in heads if head.isascii() and head.isdigit()]
