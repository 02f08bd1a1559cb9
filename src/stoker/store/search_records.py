"""Records of the sweeps that the daemon steers while they run."""

from __future__ import annotations

from stoker.store.database import Database
from stoker.store.named_values import NamedValues
from stoker.store.sweep_records import sweep_number


class SearchRecords:
    """An encoded order for each steered sweep, by the sweep's number."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._values = NamedValues(database, "search.")

    def all(self) -> dict[int, bytes]:
        """Return all orders."""
        return {int(number): order for number, order in self._values.all().items()}

    def number_of(self, name: str, cwd: bytes) -> int:
        """Return the number of a sweep; a new one gets a number."""
        with self._database.transaction():
            return sweep_number(self._database, name, cwd)

    def put(self, sweep: int, order: bytes) -> None:
        """Record the order of a sweep, on disk when this returns."""
        with self._database.transaction(durable=True):
            self._values.put(str(sweep), order)

    def forget(self, sweep: int) -> None:
        """Delete the order of a sweep that is over."""
        with self._database.transaction():
            self._values.forget(str(sweep))
