"""After a crash: what the journals know and the database does not."""

from __future__ import annotations

import signal

from stoker.core.job import Outcome, judge
from stoker.core.lifecycle import Event
from stoker.store.jobs import Jobs, Live, Usage
from stoker.supervisor import process_tree
from stoker.supervisor.journal import Ending, Record, read_journals


def recover(jobs: Jobs, journal: str) -> None:
    """Bring every attempt that was live at the crash to a truthful end.

    Waits for the earlier supervisors, which end all their jobs before they go. Where they were killed
    too, jobs of theirs may live on: those are ended here, before they could run a second time.
    """
    live = jobs.live()
    if not live:
        return
    story = read_journals(journal, {each.attempt.key for each in live})
    for each in live:
        key = each.attempt.key
        for name in story.names:
            process_tree.kill_marked(f"{name}:{key}")
        _settle(jobs, each, story.records.get(key))


def _settle(jobs: Jobs, live: Live, record: Record | None) -> None:
    if record is None and live.pid is None:
        jobs.revoke(live.attempt.job)
        return
    record = record or Record()  # a power cut may take the journal's last lines
    ending = record.last_known
    pid = live.pid or record.pid
    begun = pid, live.started_at_us, record.place
    jobs.end(live.attempt.job, outcome_of(ending), usage_of(ending), *begun)


def outcome_of(ending: Ending | None) -> Outcome:
    """What a journal's ending means for a job whose Stoker or supervisor died."""
    # The supervisor kills with SIGKILL when its client dies; such an end says nothing about the job.
    if ending is None or ending.status == signal.SIGKILL:
        return Outcome(event=Event.LOSE, reason="Stoker was killed while it ran")
    return judge(ending.status)


def usage_of(ending: Ending | None) -> Usage:
    """What the journal knows of an attempt's use."""
    return Usage(ending.at_us, ending.cpu_us, ending.max_rss_kb) if ending else Usage()
