"""Finds the jobs that a selection means."""

from __future__ import annotations

from collections.abc import Iterator

from stoker.core.lifecycle import State
from stoker.core.selector import Last, Named, Span, Term, parse_selector
from stoker.engine.hub import Hub
from stoker.errors import NotFoundError, UsageError
from stoker.wire import Selection

_LISTED = 20


def find_one(hub: Hub, text: str) -> int:
    """The id of the one job that is named."""
    terms = parse_selector(text)
    found = [job for term in terms for job, _state in _find(hub, term)]
    if len(found) != 1:
        raise UsageError(f"'{text}' names {len(found)} jobs: name one")
    return found[0]


def find(hub: Hub, selection: Selection) -> list[tuple[int, State]]:
    """The jobs of a selection with their states, in the order of their ids."""
    if selection.ids is not None:
        rows = dict(row for term in parse_selector(selection.ids) for row in _find(hub, term))
        return sorted(_narrow(hub, rows, selection).items())
    if not (selection.all or selection.states or selection.project):
        raise UsageError("no job is named: give ids, a state (-s), a project (-P), or --all")
    if selection.states and not selection.project:
        return sorted(row for state in set(selection.states) for row in _in_state(hub, state))
    sql = "SELECT job.id, state FROM job JOIN class ON class.id = job.class"
    where, values = "", []
    if selection.project:
        where, values = " WHERE project = ?", [selection.project]
    rows = {job: State(state) for job, state in hub.database.execute(sql + where, values)}
    return sorted(_narrow(hub, rows, selection).items())


def _narrow(hub: Hub, rows: dict[int, State], selection: Selection) -> dict[int, State]:
    """Those of the jobs that are also in the states and of the project that are asked for."""
    if selection.states:
        rows = {job: state for job, state in rows.items() if state in selection.states}
    if selection.project and selection.ids is not None:
        rows = {
            job: state
            for job, state in rows.items()
            if hub.jobs.facts(job).project == selection.project
        }
    return rows


def _in_state(hub: Hub, state: State) -> Iterator[tuple[int, State]]:
    for (job,) in hub.database.execute("SELECT id FROM job WHERE state = ?", (state.value,)):
        yield job, state


def _find(hub: Hub, term: Term) -> list[tuple[int, State]]:
    match term:
        case Last():
            rows = _rows(hub, "ORDER BY id DESC LIMIT 1", ())
            if not rows:
                raise NotFoundError("there is no job yet: add one with stoker add")
            return rows
        case Span():
            rows = _rows(hub, "WHERE id BETWEEN ? AND ?", (term.first, term.last))
            if not rows:
                if term.first == term.last:
                    raise NotFoundError(f"there is no job {term.first}: stoker ls -a shows all")
                raise NotFoundError(
                    f"there are no jobs {term.first}-{term.last}: stoker ls -a shows all"
                )
            return rows
        case Named():
            return [_named(hub, term)]


def _named(hub: Hub, term: Named) -> tuple[int, State]:
    rows = [
        (job, State(state))
        for job, state, project in hub.database.execute(
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


def _rows(hub: Hub, clause: str, values: tuple[int, ...]) -> list[tuple[int, State]]:
    rows = hub.database.execute(f"SELECT id, state FROM job {clause}", values)  # noqa: S608 - ours
    return [(job, State(state)) for job, state in rows]
