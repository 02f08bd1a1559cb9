"""Where a job keeps what its next attempt goes on from. Standard library only: the supervisor uses it too."""

from __future__ import annotations

_JOBS_A_FOLDER = 1000


def checkpoint_path(job: int) -> str:
    """The path of a job's folder below the folder of all checkpoints: the same over all attempts."""
    return f"{job // _JOBS_A_FOLDER}/{job}"
