"""Nodes that keep the checkpoints of a job because these do not travel: too large, or not readable.

A job prefers that node for a while, because it would begin again elsewhere. The head counts as a node too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import msgspec

from stoker.engine.launch_spec import checkpoint_folder
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slots import SlotTable
from stoker.staging.node_cache import DEFAULT_LIMIT_BYTES
from stoker.store.database import Database
from stoker.store.named_values import NamedValues

PATIENCE_S = 600.0


class Stay(msgspec.Struct, frozen=True):
    """Where a job's checkpoints are, and why they do not travel."""

    node: str
    reason: str


class CheckpointPlaces:
    """Index of these jobs, recorded for the next daemon. Writes inside the caller's transaction."""

    def __init__(
        self,
        database: Database,
        slot_table: SlotTable,
        home: str,
        limit_bytes: Callable[[], int | None],
        clock: Callable[[], float],
    ) -> None:
        self._slot_table = slot_table
        self._home = home
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._records = NamedValues(database, "checkpoints.")
        self._until: dict[int, float] = {}
        self.load()

    def __bool__(self) -> bool:
        return bool(self._stays)

    def load(self) -> None:
        """Read the committed records, also after a rollback."""
        self._stays = {
            int(job): msgspec.json.decode(value, type=Stay)
            for job, value in self._records.all().items()
        }

    def on_stayed(self, running: RunningAttempt, reason: str) -> None:
        """Note that the checkpoints of an attempt stay on its node."""
        job = running.attempt.job
        self._stays[job] = Stay(running.where or self._slot_table.head, reason)
        self._until.pop(job, None)
        self._records.put(str(job), msgspec.json.encode(self._stays[job]))

    def on_requeued(self, running: RunningAttempt) -> None:
        """Note that a job runs again: checkpoints on the head may be too large to go to a node."""
        if not self._slot_table.head or not self._slot_table.is_own(running.where):
            return
        limit_bytes = min(self._limit_bytes() or DEFAULT_LIMIT_BYTES, DEFAULT_LIMIT_BYTES)
        size = _measure(checkpoint_folder(self._home, running.attempt.job), limit_bytes)
        if size > limit_bytes:
            self.on_stayed(running, "they are larger than sync.limit")

    def on_start(self, running: RunningAttempt) -> None:
        """Note that a job starts: elsewhere its old checkpoints are of no use any more."""
        job = running.attempt.job
        stay = self._stays.get(job)
        self._until.pop(job, None)
        if stay is not None and stay.node != (running.where or self._slot_table.head):
            self.forget(job)

    def forget(self, job: int) -> None:
        """Forget a job that is over."""
        if self._stays.pop(job, None) is not None:
            self._until.pop(job, None)
            self._records.forget(str(job))

    def travel(self, job: int, node: str) -> bool:
        """Whether the head's checkpoints of a job go along to a node: not if the node has newer ones."""
        stay = self._stays.get(job)
        return stay is None or stay.node != node

    def preferred(self, job: int) -> str | None:
        """Return the node for which a job waits; None for any node."""
        stay, now = self._stays.get(job), self._clock()
        if stay is None or stay.node not in self._slot_table.nodes:
            return None
        return stay.node if now < self._until.setdefault(job, now + PATIENCE_S) else None

    def why(self, job: int) -> str | None:
        """Say for which node a job waits, and until when; None if it waits for none."""
        node = self.preferred(job)
        if node is None:
            return None
        left_s = self._until[job] - self._clock()
        until = time.strftime("%H:%M:%S", time.localtime(time.time() + left_s))
        reason = self._stays[job].reason
        return f"until {until} it waits for {node}, where its checkpoints stay ({reason})"

    def due_at(self) -> float:
        """When the next job stops waiting for its node; infinity if none waits."""
        now = self._clock()
        return min((until for until in self._until.values() if until > now), default=float("inf"))


def _measure(folder: str, most_bytes: int) -> int:
    """Return the size of the files below a folder; stops soon beyond `most_bytes`."""
    total = 0
    for path, _folders, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_size
            except OSError:
                continue
            if total > most_bytes:
                return total
    return total
