"""`counts`: how many jobs that a filter lets through stand where."""

from __future__ import annotations

import contextlib

from stoker.core.lifecycle import State
from stoker.store.database import open_read_only

_SQL = (
    "SELECT state, count(*) FROM job JOIN class ON class.id = job.class"
    " WHERE submission IS NOT NULL AND (:project IS NULL OR project = :project)"
    " AND (:gpu IS NULL OR instr('+' || replace(job.slots, ',', '+') || '+', '+' || :gpu || '+'))"
    " AND (:text IS NULL OR instr(lower(ifnull(name, '')), :text)"
    " OR instr(lower(CAST(substr(command, 1, 1000) AS TEXT)), :text)) GROUP BY state"
)


def count(path: str, *, project: str | None, text: str | None, gpu: str | None) -> dict[State, int]:
    """Count by reading every job; to be called in a thread, with a connection of its own."""
    values = {"project": project, "gpu": gpu, "text": None if text is None else text.lower()}
    with contextlib.closing(open_read_only(path)) as database:
        return {State(state): number for state, number in database.execute(_SQL, values)}
