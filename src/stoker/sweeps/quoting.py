"""Where in a shell line a value stands, and how it has to be written there to arrive unharmed."""

from __future__ import annotations

import enum
import re
import shlex

_DOUBLE_SPECIAL = re.compile(r'([\\"$`])')


class QuotingContext(enum.Enum):
    """What surrounds a place in a shell line."""

    PLAIN = "plain"
    SINGLE = "single quotes"
    DOUBLE = "double quotes"
    BACKTICK = "backticks"


def quote(text: str, context: QuotingContext) -> str:
    """A text so that the shell reads it as it is."""
    if context is QuotingContext.PLAIN:
        return shlex.quote(text)
    return escape(text, context)


def escape(text: str, context: QuotingContext) -> str:
    """A text for inside of the quotes that are open; outside of any it stays as it is."""
    if context is QuotingContext.SINGLE:
        return text.replace("'", "'\\''")
    if context is QuotingContext.DOUBLE:
        return _DOUBLE_SPECIAL.sub(r"\\\1", text)
    return text


class Scanner:
    """Follows a shell line from its beginning, and knows which quotes are open."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._escaped = False
        self._comment = False
        self._last = "\n"

    @property
    def context(self) -> QuotingContext:
        """What surrounds the place after all that was read."""
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
        """The quote that is still open, if one is."""
        return next((sign for sign in self._open if sign in "'\"`"), None)

    def read(self, text: str) -> None:
        """Go on."""
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
