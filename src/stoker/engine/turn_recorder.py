"""Commits the turns of an engine, again and again while the disk is full."""

from __future__ import annotations

from stoker.engine.events import EngineListener
from stoker.store.database import Database


class TurnRecorder:
    """Commits turns. Waits for space on a full disk; with `outlived`, returns and tries later."""

    def __init__(self, database: Database, listener: EngineListener, *, outlived: bool) -> None:
        self.database = database
        self._listener = listener
        self.outlived = outlived
        self._was_refused = False

    @property
    def is_held_up(self) -> bool:
        """Whether the last turn is not recorded yet; the next turn has to wait for it."""
        return self.database.refusal is not None

    def commit(self) -> bool:
        """Commit a turn; False if the disk has no space for it now."""
        if not self.outlived:
            self.database.commit()
        elif not self.database.try_commit():
            if not self._was_refused:
                self._was_refused = True
                why = f"cannot write {self.database.path}: {self.database.refusal}"
                self._listener.on_notice(f"{why}; waiting for space")
            return False
        elif self._was_refused:
            self._was_refused = False
            self._listener.on_notice("there is space again: going on")
        return True
