"""Makes text from jobs safe to hand to a language model: visible characters, and not too many.

Output, names and commands can be written by other people and programs. Escape sequences and invisible
characters could hide instructions from the person who watches the agent.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\|(?=\n)|$)"  # titles, links, clipboard
    r"|\x1b."
)
# Control and format characters (also those that reverse text), surrogates, private and unassigned ones.
_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn"))
# Drawn as nothing, although they count as letters or marks.
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u034f\u2800") | {
    chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
}
MAX_TEXT = 400
MAX_ENTRIES = 60


class PlainLines(list[str]):
    """Lines that are visible text already; `plain_value` leaves them as they are."""


def plain_line(text: str, limit: int = MAX_TEXT) -> str:
    """Return one line of visible text, cut to a length."""
    line = " ".join(_visible(_ESCAPES.sub("", text), keep="\n\t\r").split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def plain_lines(data: bytes, count: int, limit: int) -> PlainLines:
    """Return the last lines of a log as visible text, no more than `count` with `limit` characters in all.

    A carriage return begins the line anew, as on a terminal.
    """
    if not data:
        return PlainLines()
    lines = [
        _visible(_ESCAPES.sub("", line).rstrip("\r").rpartition("\r")[2], keep="\t")
        for line in data.decode("utf-8", "replace").rstrip("\n").split("\n")
    ]
    kept: list[str] = []
    for line in reversed(lines[-count:]):
        if len(line) > limit:
            if not kept:
                kept.append("…" + line[-max(0, limit - 1) :])
            break
        kept.append(line)
        limit -= len(line) + 1
    return PlainLines(kept[::-1])


def plain_value(value: Any) -> Any:
    """Return a value for JSON: texts as plain lines, no entries that are None, and not too many entries.

    JSON has no NaN and no infinity: they become texts.
    """
    if isinstance(value, PlainLines):
        return list(value)
    if isinstance(value, str):
        return plain_line(str(value))
    if isinstance(value, Mapping):
        entries = [(str(key), entry) for key, entry in value.items() if entry is not None]
        found = {plain_line(key): plain_value(entry) for key, entry in entries[:MAX_ENTRIES]}
        if len(entries) > MAX_ENTRIES:
            found["…"] = f"{len(entries) - MAX_ENTRIES} more"
        return found
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [plain_value(entry) for entry in value[:MAX_ENTRIES]]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (int, float)) or value is None else plain_line(str(value))


def _visible(text: str, keep: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char
        for char in text
        if char in keep or (unicodedata.category(char) not in _INVISIBLE and char not in _BLANK)
    )
