"""Finds the jobs of a selection.

A name that several jobs have means the one that has not ended, and if all have ended, the newest.
"""

from __future__ import annotations

from collections import Counter

from stoker.core.lifecycle import State, is_final
from stoker.core.selector import Last, Named, Span, Term, parse_selector
from stoker.engine.context import QueueContext
from stoker.errors import NotFoundError, UsageError
from stoker.store import job_queries
from stoker.store.job_queries import Condition
from stoker.wire import Selection

_LISTED = 20


def find_one(context: QueueContext, text: str) -> int:
    """Return the id of the one named job."""
    terms = parse_selector(text)
    found = [job for term in terms for job, _state in _find(context, term)]
    if len(found) != 1:
        raise UsageError(f"'{text}' names {len(found)} jobs: name one")
    return found[0]


def find(
    context: QueueContext, selection: Selection, *, one_of_name: bool = False
) -> list[tuple[int, State]]:
    """Return the jobs of a selection with their states, in the order of their ids.

    With `one_of_name` a name that several jobs have is refused, also if only one of them has not ended.
    """
    if selection.project is not None:
        check_project(context, selection.project)
    if selection.ids is not None:
        rows = dict(
            row
            for term in parse_selector(selection.ids)
            for row in _find(context, term, one_of_name=one_of_name)
        )
        return sorted(_narrow(context, rows, selection).items())
    if not (selection.all or selection.states or selection.project):
        raise UsageError("no job is named: give ids, a state (-s), a project (-P), or --all")
    return job_queries.jobs_that_fit(context.database, _condition(selection))


def check_project(context: QueueContext, project: str) -> None:
    """Refuse a project that no job was ever added to, and list the known projects."""
    known = job_queries.projects(context.database)
    if project not in known:
        shown = ", ".join(known[:_LISTED]) + (", …" if len(known) > _LISTED else "")
        there_are = f"projects: {shown}" if known else "no job has a project"
        raise NotFoundError(f"no project {project!r}; {there_are}")


def count(context: QueueContext, selection: Selection) -> dict[State, int]:
    """Count the jobs of a selection by state, without a list of them: there may be a million."""
    counts: Counter[State] = Counter()
    for first, last in _ranges(context, selection):
        counts.update(
            job_queries.count_between(context.database, first, last, _condition(selection))
        )
    return dict(counts)


def spans(context: QueueContext, selection: Selection) -> list[tuple[int, int]]:
    """Return start and end of all attempts of a selection, in microseconds; the last end first."""
    found = [
        span
        for first, last in _ranges(context, selection)
        for span in job_queries.run_times_between(
            context.database, first, last, _condition(selection)
        )
    ]
    return sorted(found, key=lambda span: span[1], reverse=True)


def _ranges(context: QueueContext, selection: Selection) -> list[tuple[int, int]]:
    """Return the selected ranges of ids, without overlaps."""
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


def _condition(selection: Selection) -> Condition:
    return Condition(selection.states, selection.project)


def _narrow(
    context: QueueContext, rows: dict[int, State], selection: Selection
) -> dict[int, State]:
    """Return the jobs that are also in the selected states and project."""
    if selection.states:
        rows = {job: state for job, state in rows.items() if state in selection.states}
    if selection.project is not None:
        rows = {
            job: state
            for job, state in rows.items()
            if context.jobs.facts(job).request.project == selection.project
        }
    return rows


def _find(
    context: QueueContext, term: Term, *, one_of_name: bool = False
) -> list[tuple[int, State]]:
    match term:
        case Last():
            rows = job_queries.newest_job(context.database)
            if not rows:
                raise NotFoundError("there is no job yet: add one with stoker add")
            return rows
        case Span():
            _check_any(context, term)
            return job_queries.jobs_between(context.database, term.first, term.last)
        case Named():
            return [_named(context, term, one_of_name=one_of_name)]


def _check_any(context: QueueContext, span: Span) -> None:
    if not job_queries.is_any_between(context.database, span.first, span.last):
        if span.first == span.last:
            raise NotFoundError(f"there is no job {span.first}: stoker ls -a shows all")
        raise NotFoundError(f"there are no jobs {span.first}-{span.last}: stoker ls -a shows all")


def _named(context: QueueContext, term: Named, *, one_of_name: bool) -> tuple[int, State]:
    rows = [
        (job.id, job.state)
        for job in job_queries.jobs_named(context.database, term.name)
        if term.project in (None, job.project) and term.id in (None, job.id)
    ]
    label = "/".join(str(part) for part in (term.project, term.name, term.id) if part is not None)
    if not rows:
        raise NotFoundError(f"there is no job {label!r}: stoker ls -a shows all")
    if not one_of_name:
        rows = [(job, state) for job, state in rows if not is_final(state)] or rows[-1:]
    if len(rows) > 1:
        ids = ", ".join(str(job) for job, _state in rows[:_LISTED])
        more = ", …" if len(rows) > _LISTED else ""
        which = "" if one_of_name else " that have not ended"
        raise UsageError(f"{label!r} names {len(rows)} jobs{which} ({ids}{more}): use an id")
    return rows[0]
