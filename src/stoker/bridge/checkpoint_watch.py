"""Finds the running jobs of a node that have written checkpoints."""

from __future__ import annotations

from stoker.staging.node_checkpoints import NodeCheckpoints, Signature


class CheckpointWatch:
    """Finds jobs that have written checkpoints and let them rest since the last look."""

    def __init__(self, checkpoints: NodeCheckpoints) -> None:
        self._checkpoints = checkpoints
        self._seen: dict[int, Signature] = {}
        self._reported: dict[int, Signature] = {}

    def has_written(self, job: int) -> bool:
        """Whether a job has new checkpoints that have not changed since the last call."""
        now = self._checkpoints.signature(job)
        before = self._seen.get(job)
        self._seen[job] = now
        if not now or now != before or now == self._reported.get(job):
            return False
        self._reported[job] = now
        return True

    def forget(self, job: int) -> None:
        """Forget a job that has ended."""
        self._seen.pop(job, None)
        self._reported.pop(job, None)
