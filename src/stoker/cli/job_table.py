"""Rows of the table of jobs, for `ls` and `ls --watch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stoker.cli.state_colours import MARKED, STYLES
from stoker.cli.tables import Cell, Column, Row
from stoker.core.durations import format_ago, format_duration, format_left
from stoker.core.lifecycle import State, is_live, is_pending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.wire import AttemptInfo, Job

COLUMNS = (
    Column("ID", right=True),
    Column("STATE"),
    Column("GPU"),
    Column("MEMORY", right=True, spare=True),
    Column("TOOK", right=True),
    Column("WHEN"),
    Column("PRI", right=True, spare=True),
    Column("NAME", gives=True, spare=True),
    Column("REASON", gives=True, spare=True),
    Column("COMMAND", gives=True, middle=True),
)
_NAME_WIDTH = 30
_REASON_WIDTH = 40
_COMMAND_WIDTH = 300


def row_of(job: Job, now: float, *, grouped: bool = False) -> Row:
    """Return the row of a job; `grouped` if a title above it names its project."""
    return (
        str(job.id),
        _state(job),
        gpus_of(job),
        _memory(job),
        took(job, now),
        (when(job, now), "dim"),
        str(job.priority) if job.priority else "",
        cut((job.name or "") if grouped else full_name(job), _NAME_WIDTH),
        cut(_reason(job), _REASON_WIDTH),
        cut(" ".join(job.command.split()), _COMMAND_WIDTH),
    )


def _state(job: Job) -> Cell:
    """Return the state of a job, and its mark: `running, idle`."""
    if job.mark is None:
        return (job.state.value, STYLES[job.state])
    return (f"{job.state.value}, {job.mark.kind.value}", MARKED)


def _reason(job: Job) -> str:
    if job.mark is not None:
        return job.mark.text
    return "" if job.reason in (None, job.state.value) else job.reason


def full_name(job: Job) -> str:
    """Return `project/name`, `name` or `project/`."""
    return f"{job.project}/{job.name or ''}" if job.project else job.name or ""


def gpus_of(job: Job) -> Cell:
    """Return the slots of a job; before it starts, how many GPUs it needs."""
    if job.slots:
        return job.slots
    if job.gpus == 0:
        return ("cpu", "dim")
    return (f"×{job.gpus}" if job.gpus > 1 else "–", "dim")


def _memory(job: Job) -> str:
    """Return the GPU memory in use and set aside of a job that shares its GPU."""
    if job.reserved_bytes is None:
        return ""
    used = "–" if job.gpu_bytes is None else f"{job.gpu_bytes / 2**30:.1f}"
    return f"{used}/{job.reserved_bytes / 2**30:.1f} GiB{' capped' * job.capped}"


def took(job: Job | AttemptInfo, now: float) -> str:
    """Return how long a job or attempt ran, or has been running."""
    if job.started_at is None:
        return ""
    if is_live(job.state):
        return format_duration(max(0.0, now - job.started_at))
    return "" if job.ended_at is None else format_duration(max(0.0, job.ended_at - job.started_at))


def when(job: Job, now: float) -> str:
    """Return when a job was added, ended or may begin, or how long it may still take."""
    if job.state is State.DELAYED and job.begin_at is not None:
        return f"in {format_duration(max(0.0, job.begin_at - now))}"
    if is_live(job.state):
        return "" if job.ends_at is None else format_left(job.ends_at - now)
    at = job.submitted_at if is_pending(job.state) else job.ended_at
    return "" if at is None else format_ago(now - at)


def cut(text: str, width: int) -> str:
    """Cut a text to a width."""
    return text if len(text) <= width else text[: width - 1] + "…"


def rows_of(
    jobs: Sequence[Job], now: float, paused: Mapping[str | None, str], asked: str | None = None
) -> tuple[list[Row], dict[int, Cell]]:
    """Return the rows of jobs, and a title for each project if there are several, or if all are of one.

    `paused` has the reason of each paused project. The project that was `asked` for needs no title.
    """
    projects = list(dict.fromkeys(job.project for job in jobs))
    if asked is not None:
        return [row_of(job, now, grouped=True) for job in jobs], {}
    named = {*projects} - {None}
    if not named or (len(named) == 1 and None in projects):
        return [row_of(job, now) for job in jobs], {}
    rows: list[Row] = []
    titles: dict[int, Cell] = {}
    for project in projects:
        titles[len(rows)] = _title(project, paused)
        rows += [row_of(job, now, grouped=True) for job in jobs if job.project == project]
    return rows, titles


def _title(project: str | None, paused: Mapping[str | None, str]) -> Cell:
    name = "no project" if project is None else project
    if project in paused:
        return (f"{name}, paused: {paused[project]}", "bold yellow")
    return (name, "bold")
