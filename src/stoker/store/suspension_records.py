"""Records of suspensions: the intent is on disk before the driver is called."""

from __future__ import annotations

import msgspec

from stoker.core.job import Attempt
from stoker.core.suspension import Suspension
from stoker.store.database import Database
from stoker.store.named_values import NamedValues

_decoder = msgspec.json.Decoder(Suspension)


class SuspensionRecords:
    """The suspensions of attempts that have not ended, by attempt."""

    def __init__(self, database: Database) -> None:
        self._values = NamedValues(database, "suspension.")

    def all(self) -> dict[Attempt, Suspension]:
        """Return every recorded suspension."""
        return {
            Attempt.from_key(key): _decoder.decode(value)
            for key, value in self._values.all().items()
        }

    def put(self, attempt: Attempt, suspension: Suspension) -> None:
        """Record a suspension inside a transaction; replaces the record of its last stage."""
        self._values.put(attempt.key, msgspec.json.encode(suspension))

    def forget(self, attempt: Attempt) -> None:
        """Delete the record inside a transaction: the attempt runs on, or has ended."""
        self._values.forget(attempt.key)
