"""After a crash: what the journal knows and the database does not."""

from __future__ import annotations

import signal

from stoker.core.job import Outcome, judge
from stoker.core.lifecycle import Event
from stoker.executors.shepherd.journal import Ending, Record, read_journals
from stoker.store.jobs import Jobs, Live, Usage


def recover(jobs: Jobs, journal: str) -> None:
    """Bring every attempt that was live at the crash to a truthful end.

    Waits for the earlier shepherd, which ends all its jobs before it goes.
    """
    live = jobs.live()
    if not live:
        return
    records = read_journals(journal)
    for attempt in live:
        _settle(jobs, attempt, records.get(attempt.attempt.key))


def _settle(jobs: Jobs, live: Live, record: Record | None) -> None:
    if record is None and live.pid is None:
        jobs.revoke(live.attempt.job)
        return
    record = record or Record()  # a power cut may take the journal's last lines
    ending = record.ending
    usage = Usage(*ending[1:]) if ending else Usage()
    pid = live.pid or record.pid
    jobs.end(live.attempt.job, _outcome(ending), usage, pid, live.started_at_us)


def _outcome(ending: Ending | None) -> Outcome:
    # The shepherd kills with SIGKILL when its client dies; such an end says nothing about the job.
    if ending is None or ending.status == signal.SIGKILL:
        return Outcome(event=Event.LOSE, reason="Stoker was killed while it ran")
    return judge(ending.status)
