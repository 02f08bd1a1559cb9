"""Commits the turns of an engine, again and again while the disk is full."""

from __future__ import annotations

from stoker.engine.events import EngineListener
from stoker.store.database import Database


class TurnRecorder:
    """Commits turns. Waits for space on a full disk; with `outlived`, returns and tries later."""

    def __init__(self, database: Database, listener: EngineListener, *, outlived: bool) -> None:
        self._database = database
        self._listener = listener
        self.outlived = outlived
        self._was_refused = False

    @property
    def is_held_up(self) -> bool:
        """Whether the last turn is not recorded yet; the next turn has to wait for it."""
        return self._database.refusal is not None

    def commit_now(self) -> None:
        """Commit, however long it takes."""
        self._database.commit()

    def sync_when_due(self) -> None:
        """Write committed data to the disk if that is due."""
        self._database.sync_when_due()

    def sync_due_s(self) -> float | None:
        """Seconds until the next write to the disk is due; None if all is written."""
        return self._database.sync_due_s()

    def commit(self) -> bool:
        """Commit a turn; False if the disk has no space for it now."""
        if not self.outlived:
            self._database.commit()
        elif not self._database.try_commit():
            if not self._was_refused:
                self._was_refused = True
                why = f"cannot write {self._database.path}: {self._database.refusal}"
                self._listener.on_notice(f"{why}; waiting for space")
            return False
        elif self._was_refused:
            self._was_refused = False
            self._listener.on_notice("there is space again: going on")
        return True
