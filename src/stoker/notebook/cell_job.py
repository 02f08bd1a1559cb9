"""A cell as a job of the queue: submits it, follows it, and reads its result."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stoker.cli.safe_text import TextCleaner
from stoker.client.client import Client
from stoker.core.durations import format_duration
from stoker.core.lifecycle import State, is_final, is_pending
from stoker.errors import NotFoundError, StokerError, UsageError
from stoker.home import make_folder
from stoker.notebook.cell import CellResult, run_cell
from stoker.submit_context import build_submission, find_folder, to_wire
from stoker.task.call_files import call_argv, load_result, write_call
from stoker.task.job import Job
from stoker.wire import JobDetail, Kill, Submission

_CELLS = "cells"
_JOB = "job"
_POLL_S = 0.3
_TITLE = 60
_HASH_DIGITS = 8
_FORGOTTEN_S = 7 * 86_400.0


class CellError(StokerError):
    """A cell did not succeed; notebooks show it as one line, because the output has the traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"stoker: {self}"]


class CellJob:
    """A submitted cell."""

    def __init__(
        self,
        client: Client,
        source: str,
        variables: Mapping[str, Any],
        wanted: Sequence[str],
        options: Mapping[str, Any],
    ) -> None:
        self._client = client
        self._folder = _make_cell_folder(client.home)
        _remove_old_folders(client)
        self._path = os.path.join(self._folder, "call")
        try:
            write_call(self._path, run_cell, (source, dict(variables), list(wanted)), is_loud=True)
            argv = call_argv(self._path, make_title(source))
            self.id = client.add(_make_submission(argv, options))[0].first
            _note_job(self._folder, self.id)
        except TypeError as error:
            self.forget()
            raise UsageError(_explain_pickling(error, variables)) from None
        except BaseException:
            self.forget()
            raise

    def follow(self, show: Callable[[str], None]) -> JobDetail:
        """Print the job's output until it ends; `show` gets a line about its state when that changes."""
        attempt = 1
        while True:
            found = self._wait_for_start(show)
            if not is_final(found.state):
                show(describe(found))
            self._print_log(attempt)
            found = self._client.show(self.id)
            if is_final(found.state):
                show(describe(found))
                return found
            attempt = max(attempt + 1, found.attempt)

    def _wait_for_start(self, show: Callable[[str], None]) -> JobDetail:
        while True:
            found = self._client.show(self.id)
            if not is_pending(found.state):
                return found
            show(self._client.why(self.id).text)
            time.sleep(_POLL_S)

    def _print_log(self, attempt: int) -> None:
        cleaner = TextCleaner()
        for chunk in self._client.log(self.id, attempt, follow=True):
            sys.stdout.write(cleaner.feed(chunk))
            sys.stdout.flush()
        sys.stdout.write(cleaner.close())
        sys.stdout.flush()

    def result(self, found: JobDetail) -> CellResult:
        """Return what the cell left; raise CellError if it did not succeed."""
        if found.state is not State.DONE:
            reason = f": {found.reason}" if found.reason else ""
            raise CellError(f"job {self.id} {found.state.value}{reason}")
        job = Job(number=self.id, command="the cell", reason=found.reason)
        result = load_result(self._path, job)
        assert isinstance(result, CellResult)
        return result

    def kill(self) -> None:
        """End the job."""
        with contextlib.suppress(StokerError), Client(self._client.home) as client:
            client.kill(Kill(ids=str(self.id)))

    def forget(self) -> None:
        """Remove the files of the call."""
        shutil.rmtree(self._folder, ignore_errors=True)


def describe(job: JobDetail) -> str:
    """Describe a job that runs or has ended in a line."""
    where = f" on GPU {job.slots}" if job.slots and job.gpus else ""
    if not is_final(job.state):
        return f"job {job.id} is running{where}"
    took = ""
    if job.started_at is not None and job.ended_at is not None:
        took = f" in {format_duration(max(0.0, job.ended_at - job.started_at))}"
    return f"job {job.id} {job.state.value}{took}{where}"


def _make_submission(argv: list[str], options: Mapping[str, Any]) -> Submission:
    command = [to_wire(os.fsencode(word)) for word in argv]
    message = build_submission([{"command": command}], find_folder(None), dict(options))
    environment = message["env"]
    environment["PYTHONUNBUFFERED"] = "1"  # output appears as it is printed
    if environment.get("MPLBACKEND", "").startswith("module://"):
        del environment["MPLBACKEND"]  # it draws into a notebook, and the job has none
    try:
        return msgspec.convert(message, Submission)
    except msgspec.ValidationError as error:
        raise UsageError(str(error)) from None


def _make_cell_folder(home: str) -> str:
    """Make a folder for the files of a call."""
    above = os.path.join(home, _CELLS)
    make_folder(above)
    folder = os.path.join(above, os.urandom(8).hex())
    make_folder(folder)
    return folder


def _note_job(folder: str, job: int) -> None:
    """Record whose call the folder has: it stays as long as the job may need it."""
    path = os.path.join(folder, _JOB)
    with contextlib.suppress(OSError), open(path, "w", encoding="ascii") as file:
        file.write(str(job))


def _remove_old_folders(client: Client) -> None:
    """Remove the folders that ended kernels left a week ago, unless their jobs still wait or run."""
    for folder in _old_folders(os.path.join(client.home, _CELLS)):
        if _has_ended(client, folder):
            shutil.rmtree(folder, ignore_errors=True)


def _has_ended(client: Client, folder: str) -> bool:
    """Whether the job of a folder is final or gone; also if the folder names none."""
    try:
        with open(os.path.join(folder, _JOB), encoding="ascii") as file:
            job = int(file.read())
    except (OSError, ValueError):
        return True
    try:
        return is_final(client.show(job).state)
    except NotFoundError:
        return True
    except StokerError:
        return False  # unknown: a later cell asks again


def _old_folders(above: str) -> Iterator[str]:
    with os.scandir(above) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - _FORGOTTEN_S:
                    yield entry.path


def make_title(source: str) -> str:
    """Return the comment that a cell begins with, else a short hash of the cell.

    Never code: the title is in the job's command line, which every user of the machine can read.
    """
    first, _, _ = source.strip().partition("\n")
    comment = first.lstrip("#").strip() if first.startswith("#") else ""
    shown = "".join(char for char in comment if char.isprintable())
    if not shown:
        shown = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    return f"cell: {shown if len(shown) <= _TITLE else shown[: _TITLE - 1] + '…'}"


def _explain_pickling(error: TypeError, variables: Mapping[str, Any]) -> str:
    """Name the variable that cannot be sent."""
    import cloudpickle

    for name, value in variables.items():
        try:
            cloudpickle.dumps(value)
        except Exception as reason:
            return (
                f"-i {name}: a {type(value).__name__} cannot be sent to another process: {reason}"
            )
    return str(error)
