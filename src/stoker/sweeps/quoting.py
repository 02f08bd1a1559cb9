"""Quoting of values in a shell line according to the quotes around them."""

from __future__ import annotations

import enum
import re
import shlex

_DOUBLE_SPECIAL = re.compile(r'([\\"$`])')


class QuotingContext(enum.Enum):
    """Quotes around a position in a shell line."""

    PLAIN = "plain"
    SINGLE = "single quotes"
    DOUBLE = "double quotes"
    BACKTICK = "backticks"


def quote(text: str, context: QuotingContext) -> str:
    """Quote a text so that the shell reads it literally."""
    if context is QuotingContext.PLAIN:
        return shlex.quote(text)
    return escape(text, context)


def escape(text: str, context: QuotingContext) -> str:
    """Escape a text for the open quotes; unchanged outside quotes."""
    if context is QuotingContext.SINGLE:
        return text.replace("'", "'\\''")
    if context is QuotingContext.DOUBLE:
        return _DOUBLE_SPECIAL.sub(r"\\\1", text)
    return text


class Scanner:
    """Reads a shell line from its start and tracks which quotes are open."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._escaped = False
        self._comment = False
        self._last = "\n"

    @property
    def context(self) -> QuotingContext:
        """Quotes around the position after the text read so far."""
        if "`" in self._open:
            return QuotingContext.BACKTICK
        match self._open[-1:]:
            case ["'"]:
                return QuotingContext.SINGLE
            case ['"']:
                return QuotingContext.DOUBLE
        return QuotingContext.PLAIN

    @property
    def unclosed(self) -> str | None:
        """The quote that is still open; None if none is."""
        return next((sign for sign in self._open if sign in "'\"`"), None)

    def read(self, text: str) -> None:
        """Read more text."""
        for char in text:
            if self._escaped:
                self._escaped = False
            elif self._comment:
                self._comment = char != "\n"
            else:
                self._step(char)
            self._last = char

    def _step(self, char: str) -> None:
        top = self._open[-1] if self._open else ""
        if top == "'":
            if char == "'":
                self._open.pop()
        elif char == "\\":
            self._escaped = True
        elif char in ('"', "`") and char == top:
            self._open.pop()
        elif char == "`" or (char == '"' and top != '"') or (char == "'" and top != '"'):
            self._open.append(char)
        elif char == "(" and (self._last == "$" or top == "("):
            self._open.append("(")
        elif char == ")" and top == "(":
            self._open.pop()
        elif char == "#" and top != '"' and (self._last.isspace() or self._last in ";&|("):
            self._comment = True
