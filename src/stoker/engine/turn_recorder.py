"""Puts an engine's turns on record; what a full disk refuses is tried again."""

from __future__ import annotations

from stoker.engine.events import EngineListener
from stoker.store.database import Database


class TurnRecorder:
    """Commits. A foreground waits for space; with `outlived` others are to be answered meanwhile."""

    def __init__(self, database: Database, listener: EngineListener, *, outlived: bool) -> None:
        self._database = database
        self._listener = listener
        self.outlived = outlived
        self._was_refused = False

    @property
    def is_held_up(self) -> bool:
        """Whether the last turn is not on record yet; until it is there can be no other."""
        return self._database.refusal is not None

    def commit_now(self) -> None:
        """Put what was done on record, however long that takes."""
        self._database.commit()

    def sync_when_due(self) -> None:
        """Write to the disk what was committed, if it is time for that."""
        self._database.sync_when_due()

    def sync_due_s(self) -> float | None:
        """In how many seconds that is; None if all is written."""
        return self._database.sync_due_s()

    def commit(self) -> bool:
        """Put a turn on record; False if there is no space for it at this moment."""
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
