"""Content of a sweep file with the line of every entry, so that errors can name it."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from stoker.errors import UsageError


class DefinitionError(Exception):
    """A mistake in a definition, without its line. The caller adds the line and raises a UsageError."""


class Map(dict[str, Any]):
    """A mapping with the lines of its entries."""

    def __init__(self, file: str | None = None) -> None:
        super().__init__()
        self.file = file
        self.lines: dict[str, int] = {}

    def put(self, key: str, value: Any, line: int | None = None) -> None:
        """Add an entry, and its line if known."""
        self[key] = value
        if line is not None:
            self.lines[key] = line

    def fail(self, key: str, message: str) -> NoReturn:
        """Raise a UsageError about an entry."""
        raise UsageError(f"{self.place(key)}{message}")

    def place(self, key: str) -> str:
        """Return the start of a message about an entry: file and line."""
        if self.file is None:
            return ""
        line = self.lines.get(key)
        return f"{self.file}: " if line is None else f"{self.file}:{line}: "

    def check_keys(self, known: Collection[str], what: str) -> None:
        """Raise UsageError for an unknown key, and suggest a known one."""
        for key in self:
            if key not in known:
                self.fail(key, f"{what} '{key}': {did_you_mean(key, known)}")


class Seq(list[Any]):
    """A list with the lines of its items."""

    def __init__(self, file: str | None = None) -> None:
        super().__init__()
        self.file = file
        self.lines: list[int] = []

    def put(self, value: Any, line: int | None = None) -> None:
        """Add an item, and its line if known."""
        self.append(value)
        if line is not None:
            self.lines.append(line)

    def place(self, index: int) -> str:
        """Return the start of a message about an item: file and line."""
        if self.file is None:
            return ""
        known = index < len(self.lines)
        return f"{self.file}:{self.lines[index]}: " if known else f"{self.file}: "


def as_tree(value: Any) -> Any:
    """Convert plain dictionaries and lists to a tree without lines; a tree is returned as it is."""
    if isinstance(value, (Map, Seq)):
        return value
    if isinstance(value, Mapping):
        mapping = Map()
        for key, entry in value.items():
            mapping.put(str(key), as_tree(entry))
        return mapping
    if isinstance(value, (list, tuple, range)):
        sequence = Seq()
        for item in value:
            sequence.put(as_tree(item))
        return sequence
    return value


def did_you_mean(word: str, known: Collection[str]) -> str:
    """Suggest the closest known word, or list all of them."""
    near = difflib.get_close_matches(word, known, n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"there are: {', '.join(known)}" if known else "there is none"
