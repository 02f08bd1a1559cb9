"""Recovery after a crash: records the ends that only the supervisor's journal knows."""

from __future__ import annotations

import os
import signal

from stoker.core.job import Outcome, judge
from stoker.core.lifecycle import Event
from stoker.store.foreground_runs import ForegroundRun
from stoker.store.jobs import Jobs, Live, Usage
from stoker.supervisor import process_tree
from stoker.supervisor.journal import Ending, Record, read_journals

_KILLED = "Stoker was killed while it ran"
_COPIED = "this run is a copy: the attempt belongs to the original, where it may still run"


def name_supervisor(kind: str, run: ForegroundRun) -> str:
    """Return the name of a run's supervisor, which its processes carry; it names the run's folder."""
    return f"stoker-{kind}-{run.name}-{run.folder_number}-{os.getpid()}"


def recover(jobs: Jobs, journal: str, folder_number: str) -> int:
    """Bring every attempt that was live at the crash to a truthful end; return how many are a copy's.

    Waits for the earlier supervisors, which end all their jobs before they go. Where they were killed
    too, jobs of theirs may live on: those are ended here, before they could run a second time. The
    processes of supervisors that worked in another folder belong to the run of which this one is a copy:
    they are left alone.
    """
    live = jobs.live()
    if not live:
        return 0
    story = read_journals(journal, {each.attempt.key for each in live})
    own = {name for name in story.names if folder_number in name.split("-")}
    # A device may get another number when the machine starts; the inode stays.
    inode = folder_number.partition(".")[2]
    is_copy = bool(story.names) and not any(f".{inode}-" in name for name in story.names)
    for each in live:
        key = each.attempt.key
        for name in own:
            process_tree.kill_marked(f"{name}:{key}")
        _settle(jobs, each, story.records.get(key), _COPIED if is_copy else _KILLED)
    return len(live) if is_copy else 0


def _settle(jobs: Jobs, live: Live, record: Record | None, lost_because: str) -> None:
    if record is None and live.pid is None:
        jobs.revoke(live.attempt.job)
        return
    record = record or Record()  # a power cut may take the journal's last lines
    ending = record.last_known
    pid = live.pid or record.pid
    begun = pid, live.started_at_us, record.slot
    jobs.end(live.attempt.job, outcome_of(ending, lost_because), usage_of(ending), *begun)


def outcome_of(ending: Ending | None, lost_because: str = _KILLED) -> Outcome:
    """What a journal's ending means for a job whose Stoker or supervisor died."""
    # The supervisor kills with SIGKILL when its client dies; such an end says nothing about the job.
    if ending is None or ending.status == signal.SIGKILL:
        return Outcome(event=Event.LOSE, reason=lost_because)
    return judge(ending.status)


def usage_of(ending: Ending | None) -> Usage:
    """What the journal knows of an attempt's use."""
    return Usage(ending.at_us, ending.cpu_us, ending.max_rss_kb) if ending else Usage()
