"""Settings on record: those that differ from their defaults."""

from __future__ import annotations

from stoker.store.database import Database


def read_settings(database: Database) -> dict[str, str]:
    """Every setting on record by its name."""
    return dict(database.execute("SELECT name, value FROM config").fetchall())


def record_setting(database: Database, name: str, value: str) -> None:
    """Record a setting inside a transaction, in place of the value before."""
    database.write("INSERT OR REPLACE INTO config VALUES (?, ?)", (name, value))


def forget_setting(database: Database, name: str) -> None:
    """Let the default of a setting count again, inside a transaction."""
    database.write("DELETE FROM config WHERE name = ?", (name,))
