"""Orders that `stoker top` gives for one job; each returns a line for its user."""

from __future__ import annotations

from collections.abc import Callable

from stoker.client.client import Client
from stoker.core.lifecycle import State
from stoker.errors import StokerError
from stoker.wire import Changed, Hold, Job, Kill, Pause, Release, Resume, Retry


def kill(job: Job) -> str:
    """End a job."""
    return _give(job, "killed", lambda client: client.kill(Kill(ids=str(job.id))))


def retry(job: Job) -> str:
    """Run a job again."""
    return _give(job, "runs again", lambda client: client.retry(Retry(ids=str(job.id))))


def hold_or_release(job: Job) -> str:
    """Hold a job, or release it if it is held."""
    if job.state is State.HELD:
        return _give(job, "released", lambda client: client.release(Release(ids=str(job.id))))
    return _give(job, "held", lambda client: client.hold(Hold(ids=str(job.id))))


def pause_or_resume(job: Job) -> str:
    """Pause a running job, or let a paused or suspended one go on."""
    if job.state in (State.PAUSED, State.SUSPENDED):
        return _give(job, "goes on", lambda client: client.resume(Resume(ids=str(job.id))))
    return _give(job, "paused", lambda client: client.pause(Pause(ids=str(job.id))))


def _give(job: Job, done: str, order: Callable[[Client], Changed]) -> str:
    try:
        with Client() as client:
            order(client)
    except StokerError as error:
        return str(error)
    return f"job {job.id}: {done}"
