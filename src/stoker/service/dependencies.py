"""Dependencies of jobs: parses `--after` and `--after-any`, and refuses cycles."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.core.readiness import find_cycle
from stoker.engine.context import QueueContext
from stoker.errors import ConflictError, StokerError
from stoker.service.job_selection import find
from stoker.wire import Selection

_SHOWN = 8


def read_needs(
    context: QueueContext, after: str | None, after_any: str | None
) -> list[tuple[int, bool]]:
    """Return the named jobs, each with whether any end of it suffices."""
    needs: dict[int, bool] = {}
    for text, any_end in ((after_any, True), (after, False)):
        if text is not None:
            try:
                found = find(context, Selection(ids=text))
            except StokerError as error:
                error.field = "after_any" if any_end else "after"
                raise
            needs.update((job, any_end) for job, _state in found)
    return sorted(needs.items())


def refuse_circle(context: QueueContext, job: int, needs: Iterable[int]) -> None:
    """Raise if a job would wait for itself, directly or through others."""
    graph: dict[int, list[int]] = {job: list(needs)}
    queue = list(graph[job])
    while queue:
        current = queue.pop()
        if current not in graph:
            graph[current] = [need.id for need in context.pending.needs_of(current)]
            queue += graph[current]
    circle = find_cycle(job, graph)
    if circle is not None:
        shown = circle if len(circle) <= _SHOWN else [*circle[: _SHOWN - 1], circle[-1]]
        way = [f"job {number}" for number in shown]
        if len(circle) > _SHOWN:
            way.insert(-1, f"({len(circle) - _SHOWN} more)")
        raise ConflictError(f"that would be a circle: {' needs '.join(way)}")
