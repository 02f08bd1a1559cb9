"""Attempts that were given up because their node could not be reached, and whose end was not seen yet.

They are recorded, so that the next daemon knows them too. If the node returns before a job has started again,
the job has its attempt back, and the node says how it ended.
"""

from __future__ import annotations

from stoker.core.job import Attempt
from stoker.core.lifecycle import State
from stoker.engine.running_attempt import RunningAttempt
from stoker.store.database import Database
from stoker.store.named_values import NamedValues
from stoker.store.queue_jobs import QueueJobs


class GivenUp:
    """Index of these attempts by node and by job. All methods write inside the caller's transaction."""

    def __init__(self, database: Database, jobs: QueueJobs) -> None:
        self._jobs = jobs
        self._records = NamedValues(database, "given_up.")
        self.load()

    def load(self) -> None:
        """Read the committed records, also after a rollback."""
        self._nodes = {key: node.decode() for key, node in self._records.all().items()}

    def add(self, running: RunningAttempt) -> None:
        """Record an attempt before it is given up."""
        self._nodes[running.key] = running.where
        self._records.put(running.key, running.where.encode())

    def discard(self, key: str) -> None:
        """Note that an attempt is over for certain, or runs again."""
        if self._nodes.pop(key, None) is not None:
            self._records.forget(key)

    def keep_only(self, node: str, keys: frozenset[str]) -> None:
        """Note that a node knows no other attempts than these."""
        for key in self._on(node) - keys:
            self.discard(key)

    def current(self, node: str) -> list[Attempt]:
        """Return the attempts of a node whose jobs still wait for their next attempt."""
        attempts = map(Attempt.from_key, self._on(node))
        return [
            attempt
            for attempt in attempts
            if self._jobs.attempt_of(attempt.job) == attempt.number
            and self._jobs.state_of(attempt.job) is State.WAITING
        ]

    def unseen(self, job: int) -> list[tuple[int, str]]:
        """Return the attempts of a job that may still run: their numbers and nodes."""
        found = [(Attempt.from_key(key), node) for key, node in self._nodes.items()]
        return sorted((attempt.number, node) for attempt, node in found if attempt.job == job)

    def _on(self, node: str) -> frozenset[str]:
        return frozenset(key for key, name in self._nodes.items() if name == node)
