"""`add`: puts jobs into the queue and on disk."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import platform
import time
from collections.abc import Sequence

import msgspec

from stoker.core.job import Request
from stoker.core.lifecycle import State
from stoker.core.placement import PlacementRule, make_where, write_where
from stoker.core.selector import check_name
from stoker.core.sharing.rules import Mode
from stoker.engine.context import QueueContext
from stoker.engine.gpu_models import refuse_too_large
from stoker.engine.launch_spec import join_words
from stoker.errors import ConflictError, StokerError, UsageError
from stoker.failpoints import reach
from stoker.service.blocking_calls import call_in_thread
from stoker.service.dependencies import read_needs
from stoker.service.pending_states import settle
from stoker.service.placement_check import check_host, check_where
from stoker.store.job_queries import reason_of, state_of
from stoker.store.submissions import Common, NewRow, Reservation, count_added
from stoker.store.sweep_records import RunRow, sweep_number
from stoker.submit_context import take_environment, warn_of_slurm
from stoker.wire import Added, Bytes, NewJob, NewRun, Submission, from_wire

_MOST_WHOLE = 500  # more jobs go in slices, with turns of the engine between them
_SLICE = 1000
_ROWS_AT_ONCE = 5000
_PAUSE_S = 1.0
_IDENTITY_BYTES = 32
MAX_COMMAND_BYTES = 32 * 2**20


async def add(context: QueueContext, submission: Submission) -> Added:
    """Add jobs to the queue; they are on disk when the answer comes. A repeated request adds nothing.

    A large submission goes in slices, and the engine plans turns between them. After a crash, the repeated
    request continues where the first one ended. If the disk becomes full after the first slice, it waits for
    space, because some of its jobs may have run already.
    """
    if submission.by_page:
        await call_in_thread(_check_folder, submission.cwd)
    submission = _keep_near_client(context, submission)
    _check(submission)
    rows = await _rows(submission)
    common = _common(submission)
    with context.database.transaction(durable=len(rows) > _MOST_WHOLE):
        reservation = context.jobs.reserve(common)
        if reservation.jobs != len(rows):
            raise UsageError("another request had this request id: make a new one")
        needs = _needs(context, submission, reservation)
        if not reservation.added:
            _check_wishes(
                context, submission
            )  # what was added before stays added, whatever is here now
            if len(rows) <= _MOST_WHOLE:
                _fill(context, reservation, 0, rows, submission, needs)
    reach("add-reserved")
    if len(rows) > _MOST_WHOLE:
        await _fill_in_slices(context, reservation, rows, submission, needs)
    # Also for a repeat: a crash may have come between its commit and its sync.
    warning = context.database.sync()
    reach("add-synced")
    context.events.touch()
    context.driver.poke()
    first, last = reservation.first_job, reservation.first_job + len(rows) - 1
    repeated = reservation.added == len(rows)
    notice = warning or _notice(context, submission, first, last)
    return Added(first=first, last=last, repeated=repeated, notice=notice)


def _keep_near_client(context: QueueContext, submission: Submission) -> Submission:
    """Let an interactive job run on this machine alone: its client waits here."""
    head = context.engine.slot_table.head
    if submission.interactive is None or not head:
        return submission
    return msgspec.structs.replace(submission, nodes=[head])


def _needs(
    context: QueueContext, submission: Submission, reservation: Reservation
) -> list[tuple[int, bool]]:
    """Return the jobs that these jobs wait for; a repeated request has those of the first one."""
    if submission.after is None and submission.after_any is None:
        return []
    if reservation.added:
        return [(need.id, need.any) for need in context.pending.needs_of(reservation.first_job)]
    return read_needs(context, submission.after, submission.after_any)


def _notice(context: QueueContext, submission: Submission, first: int, last: int) -> str | None:
    """Return why the jobs do not run, if the user may not expect it."""
    database = context.database
    if submission.after is not None and state_of(database, first) is State.SKIPPED:
        return f"{_name(first, last)} skipped: {reason_of(database, first)}"
    pauses = list(context.admission.pauses(submission.project))
    if pauses and state_of(database, first) is not State.WAITING:
        return None
    if pauses:
        return f"{_name(first, last)} waiting: {pauses[0]}"
    if submission.on_nan == "notify" and context.config.text("notify") == "none":
        return "of nan only stoker status will tell: stoker config notify URL sets an address"
    return warn_of_slurm(submission.env, submission.gpus)


def _name(first: int, last: int) -> str:
    return f"job {first} is" if first == last else f"jobs {first}-{last} are"


async def _rows(submission: Submission) -> list[NewRow]:
    """Check each job; the engine plans turns between parts of a large submission."""
    rows: list[NewRow] = []
    for first in range(0, len(submission.jobs), _ROWS_AT_ONCE):
        if first:
            await asyncio.sleep(0)
        part = submission.jobs[first : first + _ROWS_AT_ONCE]
        rows += _line_rows(part, submission) or [_row(job, submission) for job in part]
    return rows


def _line_rows(jobs: Sequence[NewJob], submission: Submission) -> list[NewRow] | None:
    """Return the rows of shell lines, by far the most frequent jobs; None if one needs a closer look."""
    if submission.log is not None or any(
        type(job.command) is not str or job.script or job.log is not None for job in jobs
    ):
        return None
    commands = [job.command.encode() for job in jobs]  # type: ignore[union-attr]
    if (
        not all(map(bytes.strip, commands))
        or b"\0" in b"".join(commands)
        or max(map(len, commands)) > MAX_COMMAND_BYTES
    ):
        return None
    name = submission.name
    return [
        NewRow(
            command,
            None,
            job.name or name,
            None,
            None if job.run is None else _run(job.run, submission),
        )
        for command, job in zip(commands, jobs, strict=True)
    ]


async def _fill_in_slices(
    context: QueueContext,
    reservation: Reservation,
    rows: list[NewRow],
    submission: Submission,
    needs: list[tuple[int, bool]],
) -> None:
    added = reservation.added
    while added < len(rows):
        await asyncio.sleep(0)
        try:
            with context.database.transaction():
                # A repeat of this request may add jobs at the same time.
                offset = count_added(context.database, reservation.submission)
                part = rows[offset : offset + _SLICE]
                if part:
                    _fill(context, reservation, offset, part, submission, needs)
        except StokerError as error:
            context.engine.tell_once(f"{error}; jobs {reservation.first_job} and on wait for space")
            await asyncio.sleep(_PAUSE_S)
            continue
        added = offset + len(part)
        reach("add-slice")
        context.driver.poke()


def _fill(
    context: QueueContext,
    reservation: Reservation,
    offset: int,
    rows: list[NewRow],
    submission: Submission,
    needs: list[tuple[int, bool]],
) -> None:
    sweep = None
    if submission.sweep is not None:
        sweep = sweep_number(context.database, submission.sweep, _decode(submission.cwd, "cwd"))
    context.jobs.fill(reservation, offset, rows, _request(submission), sweep)
    first = reservation.first_job + offset
    context.ranks.place(first, first + len(rows) - 1)
    if needs or submission.hold or submission.begin_at is not None:
        for job in range(first, first + len(rows)):
            _make_pending(context, job, submission, needs)


def _request(submission: Submission) -> Request:
    return Request(
        slots=submission.gpus,
        timeout_s=submission.timeout_s,
        project=submission.project,
        share=None if submission.share == Mode.NEVER.value else submission.share,
        gpu_mem=submission.gpu_mem_bytes,
        where=write_where(_where(submission)),
        cpus=submission.cpus,
        mem_bytes=submission.mem_bytes,
        priority=submission.priority,
        retries=submission.retries,
        options=msgspec.structs.replace(
            submission.options, results=os.path.normpath(submission.results)
        ),
    )


def _make_pending(
    context: QueueContext, job: int, submission: Submission, needs: list[tuple[int, bool]]
) -> None:
    """Hold, delay or block a job that was just added, as submitted."""
    for needed, any_end in needs:
        context.pending.link(job, needed, any_end)
    if submission.hold:
        context.pending.hold(job, True)
    if submission.begin_at is not None:
        context.pending.delay(job, int(submission.begin_at * 1e6))
    settle(context, job)


def _check_folder(cwd: Bytes) -> None:
    """Refuse a folder of the web page that does not exist. The command line checks its own."""
    folder = _decode(cwd, "cwd")
    if os.path.isabs(folder) and not os.path.isdir(folder):
        shown = folder.decode(errors="backslashreplace")
        raise UsageError(f"there is no folder {shown}: name one of this machine", field="cwd")


def _check(submission: Submission) -> None:
    for name in {submission.name, *(job.name for job in submission.jobs)} - {None}:
        check_name("the name", name or "", "name")
    if submission.project is not None:
        check_name("the project", submission.project, "project")
    if submission.sweep is not None:
        check_name("the sweep", submission.sweep)
    if not os.path.isabs(_decode(submission.cwd, "cwd")):
        raise UsageError("cwd is not an absolute path", field="cwd")
    _check_sync(submission)
    _check_image(submission)
    shell = submission.shell
    if shell is not None and (not os.path.isabs(shell) or "\0" in shell):
        raise UsageError("the shell is not an absolute path", field="shell")


def _check_image(submission: Submission) -> None:
    if submission.image is not None and submission.warm:
        raise UsageError(
            "--warm forks a process of this machine, and --image starts one in a container: give one of them",
            field="warm",
        )


def _check_sync(submission: Submission) -> None:
    results = os.path.normpath(submission.results)
    names = results.split("/")
    if "\0" in results or names[0] in ("", ".", "..") or ".git" in names:
        raise UsageError(
            f"--results {submission.results}: name a folder below the one that the job runs in",
            field="results",
        )
    if not submission.sync:
        return
    if submission.snapshot is None:
        raise UsageError("sync ships a snapshot, and the submission names none", field="snapshot")
    cwd = os.path.join(_decode(submission.cwd, "cwd"), b"")
    for job in submission.jobs:
        if job.run is not None and not os.path.normpath(_decode(job.run.dir, "dir")).startswith(
            cwd
        ):
            raise UsageError(
                "the folders of the runs lie outside of the sweep's own, where --sync brings nothing"
                " back: let dir name one below it"
            )


def _check_wishes(context: QueueContext, submission: Submission) -> None:
    if submission.begin_at is not None and submission.begin_at < time.time() - 60:
        raise UsageError(
            "the time to begin lies in the past: leave it out to begin at once", field="begin_at"
        )
    slots = context.engine.slot_table.slots_left()
    if submission.gpus and not slots:
        raise ConflictError(
            f"{context.no_gpu_reason or 'this queue has no GPU'}:"
            " stoker daemon restart --gpus 0,1 names them; add -g 0 for a job without GPU",
            field="gpus",
        )
    if submission.gpus > slots:
        has = (
            "this queue has" if context.engine.slot_table.grid is None else "no node has more than"
        )
        raise UsageError(
            f"the job asks for {submission.gpus} GPUs, and {has} {slots}: ask for fewer (-g)",
            field="gpus",
        )
    check_gpu_mem(context, submission.gpu_mem_bytes)
    check_where(context, _where(submission), submission.gpus)
    check_host(context, _request(submission))
    allowed = context.admission.allowed(submission.project)
    if allowed is not None and submission.gpus > len(allowed):
        raise UsageError(
            f"the job asks for {submission.gpus} GPUs, and project {submission.project} may use"
            f" {len(allowed)} (stoker config gpus.{submission.project})",
            field="gpus",
        )


def _where(submission: Submission) -> PlacementRule:
    return make_where(submission.nodes, submission.on, submission.node_labels)


def check_gpu_mem(context: QueueContext, asked: int | None) -> None:
    """Refuse more memory than any GPU of this queue has."""
    largest = (
        None if context.engine.gpus.sharing is None else context.engine.gpus.sharing.largest_bytes()
    )
    refuse_too_large(asked, largest)


def _row(job: NewJob, submission: Submission) -> NewRow:
    form: str | None
    if isinstance(job.command, list):
        if not job.command or job.script:
            raise UsageError("a command of words needs at least one, and is no script")
        command, form = join_words([_decode(word, "command") for word in job.command]), "argv"
        if len(job.command) != command.count(b"\0") + 1:
            raise UsageError("a command holds a NUL byte")
    else:
        command, form = _decode(job.command, "command"), "script" if job.script else None
    if form is None and b"\0" in command:
        raise UsageError("a command holds a NUL byte", field="command")
    if not command.strip():
        raise UsageError("a command is empty", field="command")
    if len(command) > MAX_COMMAND_BYTES:
        raise UsageError(f"a command is longer than {MAX_COMMAND_BYTES >> 20} MiB", field="command")
    run = None if job.run is None else _run(job.run, submission)
    return NewRow(command, form, job.name or submission.name, _log(job, submission), run)


def _run(run: NewRun, submission: Submission) -> RunRow:
    if submission.sweep is None:
        raise UsageError("a job is a run of a sweep, but the submission names none")
    folder = _decode(run.dir, "dir")
    if not folder.startswith(b"/") or b"\0" in folder:
        raise UsageError("the folder of a run is no absolute path")
    try:
        identity = bytes.fromhex(run.identity)
    except ValueError:
        identity = b""
    if len(identity) != _IDENTITY_BYTES:
        raise UsageError("the identity of a run is no sha256 in hexadecimal digits")
    return RunRow(identity, folder, run.params)


def _log(job: NewJob, submission: Submission) -> bytes | None:
    given = job.log if job.log is not None else submission.log
    if given is None:
        return None
    log = _decode(given, "log")
    if not log or b"\0" in log:
        raise UsageError("the path of the log is empty or holds a NUL byte", field="log")
    return os.path.join(_decode(submission.cwd, "cwd"), log)


def _common(submission: Submission) -> Common:
    git = submission.git
    return Common(
        request_id=submission.request_id,
        jobs=len(submission.jobs),
        submitted_at_us=time.time_ns() // 1000,
        environment=_environment(submission),
        cwd=_decode(submission.cwd, "cwd"),
        shell=submission.shell,
        snapshot=_snapshot(submission.snapshot),
        git_commit=git.commit if git else None,
        git_dirty=git.dirty if git else None,
        user=submission.user,
        host=platform.node(),
        linger=submission.linger,
    )


def _snapshot(text: str | None) -> str | None:
    if text is not None and ("\0" in text or {"", ".", ".."} & set(text.split("/"))):
        raise UsageError("a snapshot is named by its id, and a folder in it")
    return text


def _environment(submission: Submission) -> bytes:
    own = take_environment() if submission.by_page else {}
    env = {**own.get("env", {}), **submission.env}
    entries = [f"{name}={value}".encode("utf-8", "replace") for name, value in env.items()]
    for others in filter(None, (own.get("env_b64"), submission.env_b64)):
        try:
            entries += base64.b64decode(others, validate=True).split(b"\0")
        except binascii.Error as error:
            raise UsageError(f"env_b64 is no base64: {error}") from None
    if any("=" in name for name in submission.env) or any(
        entry and (b"\0" in entry or entry.find(b"=") < 1) for entry in entries
    ):
        raise UsageError("the environment holds a NUL byte or a variable without a proper name")
    return b"".join(sorted(entry + b"\0" for entry in entries if entry))


def _decode(value: Bytes, what: str) -> bytes:
    try:
        data = from_wire(value)
    except ValueError as error:
        raise UsageError(f"{what} is no base64: {error}") from None
    if what == "cwd" and b"\0" in data:
        raise UsageError("cwd holds a NUL byte", field="cwd")
    return data
