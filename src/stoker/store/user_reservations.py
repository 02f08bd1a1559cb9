"""Records of the user's reservations."""

from __future__ import annotations

import msgspec

from stoker.core.user_reservation import UserReservation
from stoker.store.database import Database
from stoker.store.named_values import NamedValues

_decoder = msgspec.json.Decoder(UserReservation)
_LAST_ID = "last-user-reservation"


class UserReservationRecords:
    """The reservations that were made and not ended, by id. No id is given twice."""

    def __init__(self, database: Database) -> None:
        self._values = NamedValues(database, "user-reservation.")
        self._ids = NamedValues(database)

    def all(self) -> list[UserReservation]:
        """Return every recorded reservation, the oldest first."""
        found = [_decoder.decode(value) for value in self._values.all().values()]
        return sorted(found, key=lambda each: each.id)

    def next_id(self) -> int:
        """Return a new id inside a transaction."""
        last = self._ids.get(_LAST_ID)
        number = 1 if last is None else int(last) + 1
        self._ids.put(_LAST_ID, str(number).encode())
        return number

    def put(self, reservation: UserReservation) -> None:
        """Record a reservation inside a transaction."""
        self._values.put(str(reservation.id), msgspec.json.encode(reservation))

    def forget(self, number: int) -> None:
        """Delete a record inside a transaction."""
        self._values.forget(str(number))
