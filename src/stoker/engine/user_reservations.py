"""The user's reservations, in memory and on record."""

from __future__ import annotations

from stoker.core.user_reservation import UserReservation
from stoker.store.database import Database
from stoker.store.user_reservations import UserReservationRecords


class UserReservations:
    """The reservations of this queue that have not ended. `version` grows with each change."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._records = UserReservationRecords(database)
        self.version = 0
        self.load()

    def load(self) -> None:
        """Read what is on record."""
        self.all = self._records.all()
        self.version += 1

    def add(self, gpus: int, begin_at: float, end_at: float) -> UserReservation:
        """Make a reservation; it is on disk when this returns."""
        with self._database.transaction(durable=True):
            made = UserReservation(
                id=self._records.next_id(), gpus=gpus, begin_at=begin_at, end_at=end_at
            )
            self._records.put(made)
        self.load()
        return made

    def end(self, *ended: UserReservation) -> None:
        """Forget reservations."""
        if not ended:
            return
        with self._database.transaction(durable=True):
            for each in ended:
                self._records.forget(each.id)
        self.load()

    def forget_over(self, now: float) -> None:
        """Forget the reservations whose time is over."""
        self.end(*(each for each in self.all if each.end_at <= now))
