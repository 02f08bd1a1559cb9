"""Finds the jobs that a selection means."""

from __future__ import annotations

from collections import Counter

from stoker.core.lifecycle import State
from stoker.core.selector import Last, Named, Span, Term, parse_selector
from stoker.engine.context import QueueContext
from stoker.errors import NotFoundError, UsageError
from stoker.wire import Selection

_LISTED = 20
_WITH_REASON = {State.HELD, State.BLOCKED, State.DELAYED, State.SKIPPED, State.FAILED, State.LOST}
_STATES = {state.value: state for state in State}


def find_one(context: QueueContext, text: str) -> int:
    """The id of the one job that is named."""
    terms = parse_selector(text)
    found = [job for term in terms for job, _state in _find(context, term)]
    if len(found) != 1:
        raise UsageError(f"'{text}' names {len(found)} jobs: name one")
    return found[0]


def find(context: QueueContext, selection: Selection) -> list[tuple[int, State]]:
    """The jobs of a selection with their states, in the order of their ids."""
    if selection.project is not None:
        check_project(context, selection.project)
    if selection.ids is not None:
        rows = dict(row for term in parse_selector(selection.ids) for row in _find(context, term))
        return sorted(_narrow(context, rows, selection).items())
    if not (selection.all or selection.states or selection.project):
        raise UsageError("no job is named: give ids, a state (-s), a project (-P), or --all")
    return _rows(context, f"WHERE {_where(selection)} ORDER BY id", _values(selection))


def check_project(context: QueueContext, project: str) -> None:
    """Refuse a project that no job was ever added to, and name those that there are."""
    rows = context.database.execute(
        "SELECT project FROM class WHERE project IS NOT NULL GROUP BY project ORDER BY max(id) DESC"
    )
    known = [name for (name,) in rows]
    if project not in known:
        shown = ", ".join(known[:_LISTED]) + (", …" if len(known) > _LISTED else "")
        there_are = f"projects: {shown}" if known else "no job has a project"
        raise NotFoundError(f"no project {project!r}; {there_are}")


def count(context: QueueContext, selection: Selection) -> dict[State, int]:
    """How many jobs of a selection stand where; nothing is listed, there may be a million."""
    counts: Counter[State] = Counter()
    for first, last in _ranges(context, selection):
        for state, number in context.database.execute(
            f"SELECT state, count(*) FROM job WHERE id BETWEEN ? AND ? AND {_where(selection)}"  # noqa: S608 - ours
            " GROUP BY state",
            (first, last, *_values(selection)),
        ):
            counts[_STATES[state]] += number
    return dict(counts)


def spans(context: QueueContext, selection: Selection) -> list[tuple[int, int]]:
    """When attempts of a selection began and ended, in microseconds; the last to end is the first."""
    where = f"id BETWEEN ? AND ? AND {_where(selection)}"
    sql = (
        f"SELECT started_at_us, ended_at_us FROM job WHERE {where}"  # noqa: S608 - ours
        " UNION ALL SELECT started_at_us, ended_at_us FROM earlier_attempt"
        f" WHERE job IN (SELECT id FROM job WHERE {where})"
    )
    rows: list[tuple[int | None, int | None]] = []
    for first, last in _ranges(context, selection):
        values = (first, last, *_values(selection))
        rows += context.database.execute(sql, (*values, *values))
    found = [(begin, end) for begin, end in rows if begin is not None and end is not None]
    return sorted(found, key=lambda span: span[1], reverse=True)


def _ranges(context: QueueContext, selection: Selection) -> list[tuple[int, int]]:
    """The ids that are named, each once."""
    if selection.ids is None:
        return [(0, 2**62)]
    spans = []
    for term in parse_selector(selection.ids):
        if isinstance(term, Span):
            _check_any(context, term)
            spans.append((term.first, term.last))
        else:
            spans += [(job, job) for job, _state in _find(context, term)]
    apart: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if apart and first <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(last, apart[-1][1]))
        else:
            apart.append((first, last))
    return apart


def _where(selection: Selection) -> str:
    states = ", ".join(f"'{state.value}'" for state in selection.states)
    conditions = [f"state IN ({states})"] if states else []
    if states and _WITH_REASON.issuperset(selection.states):
        conditions.append("reason IS NOT NULL")  # there is an index of those
    if selection.project is not None:
        conditions.append("class IN (SELECT id FROM class WHERE project = ?)")
    return " AND ".join(conditions) or "1"


def _values(selection: Selection) -> tuple[str, ...]:
    return () if selection.project is None else (selection.project,)


def _narrow(
    context: QueueContext, rows: dict[int, State], selection: Selection
) -> dict[int, State]:
    """Those of the jobs that are also in the states and of the project that are asked for."""
    if selection.states:
        rows = {job: state for job, state in rows.items() if state in selection.states}
    if selection.project is not None:
        rows = {
            job: state
            for job, state in rows.items()
            if context.jobs.facts(job).project == selection.project
        }
    return rows


def _find(context: QueueContext, term: Term) -> list[tuple[int, State]]:
    match term:
        case Last():
            rows = _rows(context, "ORDER BY id DESC LIMIT 1", ())
            if not rows:
                raise NotFoundError("there is no job yet: add one with stoker add")
            return rows
        case Span():
            _check_any(context, term)
            return _rows(context, "WHERE id BETWEEN ? AND ?", (term.first, term.last))
        case Named():
            return [_named(context, term)]


def _check_any(context: QueueContext, span: Span) -> None:
    if not _rows(context, "WHERE id BETWEEN ? AND ? LIMIT 1", (span.first, span.last)):
        if span.first == span.last:
            raise NotFoundError(f"there is no job {span.first}: stoker ls -a shows all")
        raise NotFoundError(f"there are no jobs {span.first}-{span.last}: stoker ls -a shows all")


def _named(context: QueueContext, term: Named) -> tuple[int, State]:
    rows = [
        (job, State(state))
        for job, state, project in context.database.execute(
            "SELECT job.id, state, project FROM job JOIN class ON class.id = job.class"
            " WHERE name = ? ORDER BY job.id",
            (term.name,),
        )
        if (term.project is None or project == term.project) and term.id in (None, job)
    ]
    label = "/".join(str(part) for part in (term.project, term.name, term.id) if part is not None)
    if not rows:
        raise NotFoundError(f"there is no job {label!r}: stoker ls -a shows all")
    if len(rows) > 1:
        ids = ", ".join(str(job) for job, _state in rows[:_LISTED])
        more = ", …" if len(rows) > _LISTED else ""
        raise UsageError(f"{label!r} names {len(rows)} jobs ({ids}{more}): use an id")
    return rows[0]


def _rows(
    context: QueueContext, clause: str, values: tuple[object, ...]
) -> list[tuple[int, State]]:
    rows = context.database.execute(f"SELECT id, state FROM job {clause}", values)  # noqa: S608 - ours
    return [(job, _STATES[state]) for job, state in rows]
