"""Records of submissions: what the jobs of one request have in common."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stoker.core.job import Options, Request
from stoker.store.database import Database
from stoker.store.sweep_records import RunRow

USUAL = Options()
_ADD = (
    "INSERT INTO job (id, rank, command, class, priority, state, submission, form, name, log,"
    " retries, options) VALUES (?1, ?1 << 16, ?2, ?3, ?4, 'waiting', ?5, ?6, ?7, ?8, ?9, ?10)"
)
_AT_ONCE = 100
_ADD_LINES = (
    "INSERT INTO job (class, priority, state, submission, retries, options, name, log, id, rank,"  # noqa: S608
    " command) VALUES "
    + ", ".join(
        f"(?1, ?2, 'waiting', ?3, ?4, ?5, ?6, ?7, ?8 + {row}, (?8 + {row}) << 16, ?{row + 9})"
        for row in range(_AT_ONCE)
    )
)


class NewRow(msgspec.Struct, frozen=True, gc=False):
    """The values of one job of a submission."""

    command: bytes
    form: str | None = None
    name: str | None = None
    log: bytes | None = None
    run: RunRow | None = None


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """The values that the jobs of a submission have in common."""

    request_id: str
    jobs: int
    submitted_at_us: int
    environment: bytes
    cwd: bytes
    shell: str | None = None
    snapshot: str | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None
    user: str | None = None
    host: str | None = None
    linger: bool = False


class Reservation(msgspec.Struct, frozen=True):
    """The ids of a submission, and how many of its jobs are added already."""

    submission: int
    first_job: int
    jobs: int
    added: int


class JobEnvironment(msgspec.Struct, frozen=True):
    """Where and how the jobs of a submission run. Submissions with an equal one share a launch context."""

    environment: int
    cwd: bytes
    shell: str | None
    snapshot: str | None
    linger: int


class SubmissionOrigin(msgspec.Struct, frozen=True):
    """The commit, user and host of a submission."""

    git_commit: str | None
    git_dirty: int | None
    user: str | None
    host: str | None


def find_submission(database: Database, request_id: str) -> Reservation | None:
    """Return the submission with this request id; None if there is none."""
    row = database.execute(
        "SELECT id, first_job, jobs, added FROM submission WHERE request_id = ?", (request_id,)
    ).fetchone()
    return None if row is None else Reservation(*row)


def begin_submission(database: Database, common: Common, first_job: int) -> Reservation:
    """Record a submission whose ids begin with `first_job`, without its jobs."""
    values = msgspec.structs.asdict(common)
    values["environment"] = _intern(database, common.environment)
    values["first_job"] = first_job
    names = ", ".join(values)
    marks = ", ".join("?" * len(values))
    database.write(
        f"INSERT INTO submission ({names}) VALUES ({marks})",  # noqa: S608 - our own names
        tuple(values.values()),
    )
    number = database.execute("SELECT last_insert_rowid()").fetchone()[0]
    return Reservation(number, first_job, common.jobs, 0)


def add_rows(
    database: Database,
    reservation: Reservation,
    offset: int,
    rows: Sequence[NewRow],
    class_number: int,
    request: Request,
) -> None:
    """Add the next jobs of a submission."""
    options = None if request.options == USUAL else msgspec.json.encode(request.options)
    common = (class_number, request.priority, reservation.submission, request.retries, options)
    first = reservation.first_job + offset
    done = 0
    if _are_lines(rows):
        # One statement for many rows costs half as much as one statement per row.
        for done in range(_AT_ONCE, len(rows) + 1, _AT_ONCE):
            part = [row.command for row in rows[done - _AT_ONCE : done]]
            shared = (rows[0].name, rows[0].log, first + done - _AT_ONCE)
            database.write(_ADD_LINES, (*common, *shared, *part))
    database.write_many(
        _ADD,
        (
            (
                job,
                row.command,
                class_number,
                request.priority,
                reservation.submission,
                row.form,
                row.name,
                row.log,
                request.retries,
                options,
            )
            for job, row in enumerate(rows[done:], first + done)
        ),
    )
    database.write(
        "UPDATE submission SET added = ? WHERE id = ?",
        (offset + len(rows), reservation.submission),
    )


def count_added(database: Database, submission: int) -> int:
    """Return how many jobs of a submission are added."""
    row = database.execute("SELECT added FROM submission WHERE id = ?", (submission,)).fetchone()
    return int(row[0])


def environment_of(database: Database, submission: int) -> JobEnvironment:
    """Return where and how the jobs of a submission run."""
    row = database.execute(
        "SELECT environment, cwd, shell, snapshot, linger FROM submission WHERE id = ?",
        (submission,),
    ).fetchone()
    return JobEnvironment(*row)


def submitted_at_us(database: Database, submission: int) -> int:
    """Return when a submission was added."""
    row = database.execute("SELECT submitted_at_us FROM submission WHERE id = ?", (submission,))
    at_us: int = row.fetchone()[0]
    return at_us


def origin_of(database: Database, submission: int) -> SubmissionOrigin:
    """Return the commit, user and host of a submission."""
    row = database.execute(
        "SELECT git_commit, git_dirty, user, host FROM submission WHERE id = ?", (submission,)
    ).fetchone()
    return SubmissionOrigin(*row)


def _intern(database: Database, block: bytes) -> int:
    import hashlib  # here, because only a daemon that adds jobs needs it

    digest = hashlib.sha256(block).digest()
    find = "SELECT id FROM environment WHERE digest = ?"
    row = database.execute(find, (digest,)).fetchone()
    if row is None:
        database.write("INSERT INTO environment (digest, block) VALUES (?, ?)", (digest, block))
        row = database.execute(find, (digest,)).fetchone()
    return int(row[0])


def _are_lines(rows: Sequence[NewRow]) -> bool:
    """Whether rows are shell lines that have all but their commands in common."""
    name, log = rows[0].name, rows[0].log
    return all(row.form is None and row.name == name and row.log == log for row in rows)
