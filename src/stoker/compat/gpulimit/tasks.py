"""Tasks of gpulimit: jobs of Stoker whose ids count from 0, with gpulimit's statuses."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from stoker.core.lifecycle import State
from stoker.errors import UsageError
from stoker.wire import from_wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoker.client.client import Client
    from stoker.wire import Bytes, Job, JobDetail

CMD_ERROR = "CMD_ERROR"
STATUSES = {
    State.WAITING: "waiting",
    State.HELD: "waiting",
    State.BLOCKED: "waiting",
    State.DELAYED: "waiting",
    State.STARTING: "running",
    State.RUNNING: "running",
    State.PAUSED: "paused",
    State.SUSPENDED: "paused",
    State.DONE: "complete",
    State.FAILED: "runtime_error",  # or CMD_ERROR, if it could not start
    State.LOST: "runtime_error",
    State.KILLED: "killed",
    State.SKIPPED: "killed",
    State.PREEMPTED: "waiting",
    State.PRUNED: "killed",
}
_NOT_STARTED = (126, 127)  # a shell's exit codes for a command that it cannot execute, or find
DEFAULT_PRIORITY = 5
# For a daemon that gpulimit starts: only free memory decides; other processes do not close a GPU.
DAEMON_OPTIONS = ("--gpus-with-others",)
_SETTINGS = {
    "TIMER_POLLING_TIME": "gpulimit.timer_polling_time",
    "MAX_ERR_TIMES": "gpulimit.max_err_times",
    "SAFETY_KEEP_MEMORY": "gpulimit.safety_keep_memory",
    "SAFETY_KEEP_GPU_MEMORY": "gpulimit.safety_keep_gpu_memory",
    "MAX_RUNNING_TASKS": "gpulimit.max_running_tasks",
}
_IDS = re.compile(r"\d{1,12}(-\d{1,12})?(,\d{1,12}(-\d{1,12})?)*")
_IDS_OF_JOBS = re.compile(r"\bjob(s?) (\d[\d,-]*)")
_REPLACEMENTS = {
    "stoker add or stoker daemon start": "gpulimit add or gpulimit_server",
    **{setting: name for name, setting in _SETTINGS.items()},
}


def status_of(job: Job) -> str:
    """Return the status of a task: CMD_ERROR if no process could be started."""
    never_was = job.exit_code is None and job.signal is None
    if job.state is State.FAILED and (never_was or job.exit_code in _NOT_STARTED):
        return CMD_ERROR
    return STATUSES[job.state]


def convert_priority(priority: int) -> int:
    """Convert a task's priority to a job's, or back: with gpulimit lower numbers run first."""
    return DEFAULT_PRIORITY - priority


def select(words: Sequence[str]) -> dict[str, Any]:
    """Return the selection of jobs for ids of tasks: `3`, `3-7`, `1,2`, or `all`."""
    text = ",".join(words)
    if text == "all":
        return {"all": True}
    if not _IDS.fullmatch(text):
        raise UsageError(f"input {text or 'nothing'} is not a task id: write 3, 3-7 or all")
    return {"ids": _shift(text, 1)}


def find_task(client: Client, word: str) -> JobDetail:
    """Return everything about the task with an id."""
    if not word.isdecimal():
        raise UsageError(f"input {word} is not a task id: write 3")
    return client.show(select([word])["ids"])


def read_parameters(client: Client) -> dict[str, str]:
    """Return gpulimit's parameters."""
    values = {setting.name: setting.value for setting in client.config()}
    return {name: values[setting] for name, setting in _SETTINGS.items()}


def setting_of(name: str) -> str:
    """Return Stoker's setting for a parameter."""
    if name not in _SETTINGS:
        raise UsageError(f"name `{name}` can not set; there are: {', '.join(_SETTINGS)}")
    return _SETTINGS[name]


def translate(text: str) -> str:
    """Replace the ids and names in a message of Stoker by those of gpulimit."""
    for ours, theirs in _REPLACEMENTS.items():
        text = text.replace(ours, theirs)
    return _IDS_OF_JOBS.sub(lambda found: f"task{found[1]} {_shift(found[2], -1)}", text)


def show_path(path: Bytes | None) -> str:
    """Format a path."""
    return "None" if path is None else os.fsdecode(from_wire(path))


def _shift(ids: str, by: int) -> str:
    return re.sub(r"\d+", lambda number: str(int(number[0]) + by), ids)
