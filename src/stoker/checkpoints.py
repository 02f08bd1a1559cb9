"""Paths of checkpoints. Standard library only: the supervisor uses it too."""

from __future__ import annotations

_JOBS_PER_FOLDER = 1000


def checkpoint_path(job: int) -> str:
    """Return a job's folder, relative to the folder of all checkpoints; the same for all attempts."""
    return f"{job // _JOBS_PER_FOLDER}/{job}"
