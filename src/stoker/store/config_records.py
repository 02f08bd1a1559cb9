"""Records of settings that differ from their defaults."""

from __future__ import annotations

from stoker.store.database import Database


def read_settings(database: Database) -> dict[str, str]:
    """Return every recorded setting by its name."""
    return dict(database.execute("SELECT name, value FROM config").fetchall())


def record_setting(database: Database, name: str, value: str) -> None:
    """Record a setting inside a transaction; replaces the old value."""
    database.write("INSERT OR REPLACE INTO config VALUES (?, ?)", (name, value))


def forget_setting(database: Database, name: str) -> None:
    """Delete a setting inside a transaction, so that its default counts."""
    database.write("DELETE FROM config WHERE name = ?", (name,))
