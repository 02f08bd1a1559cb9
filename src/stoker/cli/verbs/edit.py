"""`stoker edit`: opens a job's settings in the user's editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile

from stoker.cli.arguments import JSON, Args, arg
from stoker.cli.job_changes import report_change
from stoker.cli.job_settings import NONE, OF_RUNNING, read_settings
from stoker.cli.selection import IDS_HELP
from stoker.cli.times import format_moment
from stoker.client.client import Client
from stoker.core.durations import spell_duration
from stoker.core.lifecycle import State, is_final, is_live
from stoker.errors import ConflictError, StokerError, UsageError
from stoker.wire import Bytes, JobDetail, Set, from_wire

SUMMARY = """\
Open a job's settings as text in $VISUAL or $EDITOR, and apply what was changed there, as stoker set
does. Text that makes no sense changes nothing."""
EXAMPLES = """\
  stoker edit 12                 one job that has not begun
  EDITOR=nano stoker edit train  with another editor
"""

_COMMAND = "--- command ---"
_HEAD = """\
# Job {id}, {state}. Change the values, save, and leave the editor.
# The value none takes a setting away. Lines that begin with # are remarks.
"""
ARGUMENTS = (arg("id", metavar="ID", help=IDS_HELP), JSON)


def run(args: Args) -> int:
    """Open the editor, and apply the changes."""
    editor = _find_editor()
    with Client() as client:
        job = client.show(args.id)
        if is_final(job.state) and job.state is not State.SKIPPED:
            raise ConflictError(f"job {job.id} is {job.state.value}: it cannot be changed any more")
        before = write_text(job)
        after = _open_editor(editor, before)
        changes = find_changes(before, after)
        if not changes:
            print("unchanged")
            return 0
        try:
            order = Set(ids=str(job.id), to=read_settings(changes.items()))
            return report_change(args, client.set(order), "changed", "unchanged")
        except (UsageError, ConflictError) as error:
            raise type(error)(f"{error}; nothing was changed") from None


def write_text(job: JobDetail) -> str:
    """Format the settings that can be changed in the job's present state."""
    values = {
        "name": job.name or NONE,
        "project": job.project or NONE,
        "priority": str(job.priority),
        "gpus": str(job.gpus),
        "gpu_mem": NONE if job.gpu_mem_bytes is None else f"{job.gpu_mem_bytes >> 20}M",
        "cpus": NONE if job.cpus is None else str(job.cpus),
        "mem": NONE if job.mem_bytes is None else f"{job.mem_bytes >> 20}M",
        "share": job.share or "never",
        "node": ",".join(job.nodes) or NONE,
        "on": job.on or NONE,
        "node_label": ",".join(f"{n}={v}" for n, v in job.node_labels.items()) or NONE,
        "timeout": NONE if job.timeout_s is None else spell_duration(job.timeout_s),
        "retries": str(job.retries),
        "begin": NONE if job.begin_at is None else format_moment(job.begin_at),
        "after": ",".join(str(need.id) for need in job.needs if not need.any) or NONE,
        "after_any": ",".join(str(need.id) for need in job.needs if need.any) or NONE,
        "log": NONE if job.log is None else _text(job.log),
    }
    if is_live(job.state):
        values = {name: value for name, value in values.items() if name in OF_RUNNING}
    lines = "".join(f"{name} = {value}\n" for name, value in values.items())
    head = _HEAD.format(id=job.id, state=job.state.value)
    command = "" if is_live(job.state) else f"\n{_COMMAND}\n{_command(job)}\n"
    return f"{head}{lines}{command}"


def read_text(text: str) -> dict[str, str]:
    """Parse edited text; all below the mark is the command."""
    head, mark, command = text.partition(f"{_COMMAND}\n")
    values: dict[str, str] = {}
    for line in head.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals:
            raise UsageError(
                f"'{line[:50]}' is not a setting: write name = value; nothing was changed"
            )
        if name in values:
            raise UsageError(f"{name} is there twice; nothing was changed")
        values[name] = value
    if mark:
        values["command"] = command.removesuffix("\n")
    return values


def find_changes(before: str, after: str) -> dict[str, str]:
    """Return the settings that differ after the edit."""
    known = read_text(before)
    return {name: value for name, value in read_text(after).items() if value != known.get(name)}


def _command(job: JobDetail) -> str:
    if job.argv is not None:
        return shlex.join(map(_text, job.argv))
    return _text(job.line) if job.line is not None else job.command


def _text(value: Bytes) -> str:
    return os.fsdecode(from_wire(value))


def _find_editor() -> list[str]:
    for name in ("VISUAL", "EDITOR"):
        if words := shlex.split(os.environ.get(name, "")):
            return words
    return ["vi"]


def _open_editor(editor: list[str], text: str) -> str:
    with tempfile.NamedTemporaryFile(prefix="stoker-", suffix=".txt") as file:
        file.write(os.fsencode(text))
        file.flush()
        try:
            code = subprocess.run([*editor, file.name], check=False).returncode
        except OSError as error:
            raise StokerError(
                f"cannot start {editor[0]}: {error.strerror}; name an editor in $EDITOR"
            ) from None
        if code:
            raise StokerError(f"{editor[0]} ended with exit {code}: nothing was changed")
        # Many editors replace the file, so open it by name.
        with open(file.name, "rb") as edited:
            return os.fsdecode(edited.read())
