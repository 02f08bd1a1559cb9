"""Text from outside, made safe to show."""

from __future__ import annotations

import os
import re

# Colours stay; every other escape sequence and control character goes.
_ESCAPES = re.compile(
    r"\x1b\[(?!(?:\d+;)*\d*m)[0-?]*[ -/]*[@-~]"  # CSI other than SGR
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # strings: titles, links, clipboard
    r"|\x1b(?!\[)."  # two-character escapes
    r"|\x1b(?!\[(?:\d+;)*\d*m)"  # and what taking those out would leave
    r"|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f\x80-\x9f]",
    re.DOTALL,
)


def clean(text: str) -> str:
    """Keep what is text or colour."""
    return _ESCAPES.sub("", text)


def write_all(fd: int, data: bytes) -> None:
    """Write bytes, however many, past every buffer."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _cut(text: str, width: int) -> str:
    """The beginning of a text, never with half a colour sequence at its end."""
    return re.sub(r"\x1b\[?[\d;]*$", "", text[:width])


def one_line(command: bytes, width: int = 200) -> str:
    """A command on one line, cut to a width."""
    text = clean(" ".join(command.decode(errors="replace").split()))
    return text if len(text) <= width else _cut(text, width - 1) + "…"


def last_lines(path: str, count: int = 5) -> list[str]:
    """The last lines of a log, as a terminal would have shown them; none if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            data = file.read()
    except OSError:
        return []
    lines = data.decode(errors="replace").rstrip().split("\n")[-count:]
    # A carriage return starts the line over: only what was written last was seen.
    return [
        _cut(clean(line.rstrip("\r").rpartition("\r")[2]), 500) for line in lines if line.strip()
    ]
