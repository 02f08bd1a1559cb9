"""What jobs wait for: reads `--after` and its kin, and refuses circles."""

from __future__ import annotations

from stoker.core.readiness import find_cycle
from stoker.engine.hub import Hub
from stoker.engine.service.select import find
from stoker.errors import ConflictError
from stoker.wire import Selection


def read_needs(hub: Hub, after: str | None, after_any: str | None) -> list[tuple[int, bool]]:
    """The jobs that are named, each with whether just its end is waited for."""
    needs: dict[int, bool] = {}
    for text, any_end in ((after_any, True), (after, False)):
        if text is not None:
            needs.update((job, any_end) for job, _state in find(hub, Selection(ids=text)))
    return sorted(needs.items())


def refuse_circle(hub: Hub, job: int, needs: list[tuple[int, bool]]) -> None:
    """Raise if a job would wait for itself, over however many others."""
    graph: dict[int, list[int]] = {job: [needed for needed, _any in needs]}
    queue = list(graph[job])
    while queue:
        current = queue.pop()
        if current not in graph:
            graph[current] = [need.id for need in hub.shelf.needs_of(current)]
            queue += graph[current]
    circle = find_cycle(job, graph)
    if circle is not None:
        way = " needs ".join(f"job {number}" for number in circle)
        raise ConflictError(f"that would be a circle: {way}")
