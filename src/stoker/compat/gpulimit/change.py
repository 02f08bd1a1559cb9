"""gpulimit's commands that change tasks and parameters."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from stoker.cli.selection import format_ids
from stoker.compat.gpulimit.tasks import (
    CMD_ERROR,
    STATUSES,
    find_task,
    read_parameters,
    select,
    setting_of,
    status_of,
    translate,
)
from stoker.core.lifecycle import State, is_final, is_pending
from stoker.errors import NotFoundError, UsageError
from stoker.wire import Kill, Move, NewSetting, Remove, Resume, Retry, Selection, Start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoker.client.client import Client
    from stoker.wire import Changed, Job

_START_PATIENCE_S = 5.0
_LOOK_PERIOD_S = 0.05


def kill(client: Client, words: Sequence[str]) -> int:
    """End tasks with all their processes; when this returns they can be started again."""
    changed = client.kill(Kill(**select(words)))
    if changed.ids:
        for _progress in client.wait(Selection(ids=format_ids(changed.ids))):
            pass
    return _report(client, changed, "kill task {} succeed.", "kill")


def rm(client: Client, words: Sequence[str]) -> int:
    """Remove tasks; those that run are killed first."""
    return _report(client, client.rm(Remove(**select(words), kill=True)), "del task {}", "rm")


def move(client: Client, words: Sequence[str]) -> int:
    """Move a waiting task to an index of the queue; 0 is the next to start."""
    index = words[1] if len(words) > 1 else "0"
    if not index.isdecimal():
        raise UsageError(f"input {index} is not an index: 0 is the next to start")
    job = find_task(client, words[0])
    moved = client.move(Move(job=str(job.id), position=int(index) + 1))
    print(f"[info]: move {job.id - 1} to {moved.position - 1}")
    return 0


def set_(client: Client, words: Sequence[str]) -> int:
    """Show the parameters, or one, or change one."""
    if not words:
        for name, value in read_parameters(client).items():
            print(f"{name} = {value}")
        return 0
    name = words[0]
    if len(words) == 1:
        setting_of(name)
        print(f"{name} = {read_parameters(client)[name]}")
        return 0
    changed = client.set_config(NewSetting(name=setting_of(name), value=words[1]))
    print(f"[info]: seted {name} = {changed.value}")
    return 0


def start(client: Client, words: Sequence[str]) -> int:
    """Start waiting tasks now despite the thresholds, and killed and failed tasks again; or plan now."""
    if not words:
        client.start(Start(queue=True))
        counts = client.status().counts
        waiting = sum(count for state, count in counts.items() if is_pending(state))
        print(f"[info]: {counts.get(State.RUNNING, 0)} tasks running, {waiting} waiting")
        return 0
    jobs = list(client.jobs(Selection(**select(words))))
    return max([_start_one(client, job) for job in jobs], default=0)


def _start_one(client: Client, job: Job) -> int:
    number = str(job.id)
    if job.state in (State.PAUSED, State.SUSPENDED):
        changed = client.resume(Resume(ids=number))
    elif is_pending(job.state):
        changed = client.start(Start(ids=number))
    elif is_final(job.state) and job.state is not State.DONE:
        changed = client.retry(Retry(ids=number))
        client.start(Start(ids=number))  # refused if it has started already
    else:
        print(f"[warning]: can not start task {job.id - 1} which have status `{status_of(job)}`")
        return 1
    if changed.ids and not _has_begun(client, job.id):
        print(
            f"[warning]: task {job.id - 1} starts next, but not yet: {translate(client.why(job.id).text)}"
        )
        return 1
    return _report(client, changed, "start task {} succeed.", "start")


def _has_begun(client: Client, job: int) -> bool:
    """Wait some seconds for a start; whether it came."""
    give_up_at = time.monotonic() + _START_PATIENCE_S
    while is_pending(client.show(str(job)).state):
        if time.monotonic() > give_up_at:
            return False
        time.sleep(_LOOK_PERIOD_S)
    return True


def clean(client: Client, words: Sequence[str]) -> int:
    """Remove the tasks that are complete or could not start, or those with the given statuses."""
    known = {*STATUSES.values(), CMD_ERROR}
    for word in words:
        if word not in known:
            raise UsageError(f"there is no status {word}; there are: {', '.join(sorted(known))}")
    wanted = words or (CMD_ERROR, STATUSES[State.DONE])
    ids = [job.id for job in client.jobs() if status_of(job) in wanted]
    if not ids:
        print("[info]: nothing to clean")
        return 0
    changed = client.rm(Remove(ids=format_ids(ids), kill=True))
    return _report(client, changed, "del task {}", "rm")


def _report(client: Client, changed: Changed, done: str, verb: str) -> int:
    """Print what was done and what was not; the exit code."""
    for job in changed.ids:
        print(f"[info]: {done.format(job - 1)}")
    for refusal in changed.refused:
        try:
            status = status_of(client.show(refusal.id))
            print(f"[warning]: can not {verb} task {refusal.id - 1} which have status `{status}`")
        except NotFoundError:
            print(f"[warning]: {translate(refusal.reason)}")
    if not changed.ids and not changed.refused:
        print(f"[info]: nothing to {verb}")
    return 1 if changed.refused else 0
