"""Small named values that survive a restart: pauses, nodes, faulty GPUs, the clock."""

from __future__ import annotations

from stoker.store.database import Database


class NamedValues:
    """The values of one topic. Their names in the database have its prefix; callers use them without."""

    def __init__(self, database: Database, prefix: str = "") -> None:
        self._database = database
        self._prefix = prefix

    def all(self) -> dict[str, bytes]:
        """Return every value of the topic by its name."""
        rows = self._database.execute(
            "SELECT name, value FROM meta WHERE name GLOB ?", (f"{self._prefix}*",)
        )
        return {name.removeprefix(self._prefix): bytes(value) for name, value in rows}

    def get(self, name: str) -> bytes | None:
        """Return one value; None if there is none of this name."""
        row = self._database.execute(
            "SELECT value FROM meta WHERE name = ?", (f"{self._prefix}{name}",)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, name: str, value: bytes) -> None:
        """Record a value inside a transaction; replaces the old one."""
        self._database.write(
            "INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"{self._prefix}{name}", value)
        )

    def forget(self, name: str) -> None:
        """Delete a value inside a transaction."""
        self._database.write("DELETE FROM meta WHERE name = ?", (f"{self._prefix}{name}",))

    def replace_all(self, values: dict[str, bytes]) -> None:
        """Replace all values of the topic inside a transaction."""
        self._database.write("DELETE FROM meta WHERE name GLOB ?", (f"{self._prefix}*",))
        for name, value in values.items():
            self.put(name, value)
