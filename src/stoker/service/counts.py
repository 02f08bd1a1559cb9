"""`counts`: how many jobs that a filter lets through are in which state."""

from __future__ import annotations

from stoker.core.lifecycle import State
from stoker.store.job_queries import count_matching


def count(path: str, *, project: str | None, text: str | None, gpu: str | None) -> dict[State, int]:
    """Count by reading every job of a database; to be called in a thread."""
    return count_matching(path, project=project, text=text, gpu=gpu)
