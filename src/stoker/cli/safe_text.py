"""Makes text from outside safe for a terminal."""

from __future__ import annotations

import codecs
import os
import re

# Everything but colours: other escape sequences and control characters.
_ESCAPES = re.compile(
    r"\x1b\[(?!(?:\d+;)*\d*m)[0-?]*[ -/]*[@-~]"  # CSI other than SGR
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # strings: titles, links, clipboard
    r"|\x1b(?!\[)."  # two-character escapes
    r"|\x1b(?!\[(?:\d+;)*\d*m)"  # and what taking those out would leave
    r"|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f\x80-\x9f]",
    re.DOTALL,
)

# In a stream a string ends at the end of its line, so that an unclosed one does not hide all that follows.
_STRINGS = re.compile(r"\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\|(?=[\x1b\n]))")
_UNFINISHED = re.compile(
    r"(?P<string>\x1b[\]PX^_])[^\x07\x1b\n]*(?P<end>\x1b?)\Z|(?P<other>\x1b(?:\[[0-?]*[ -/]*)?)\Z"
)
_LONGEST_SEQUENCE = 64


def clean(text: str) -> str:
    """Remove all escape sequences but colours, and all control characters."""
    return _ESCAPES.sub("", text)


class TextCleaner:
    """Cleans a stream whose chunks may cut characters and escape sequences.

    A carriage return clears its line, so that progress bars look right.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._returned = False
        self._coloured = False

    def feed(self, data: bytes) -> str:
        """Take a chunk; return the text that can be shown now."""
        return self._show(self._rest + self._decoder.decode(data))

    def close(self) -> str:
        """Return the rest at the end of the stream, and reset the colour."""
        text = self._show(self._rest + self._decoder.decode(b"", final=True))
        return text + "\x1b[0m" * self._coloured

    def _show(self, text: str) -> str:
        unfinished = _UNFINISHED.search(text)
        self._rest = ""
        if unfinished:
            text = text[: unfinished.start()]
            self._rest = unfinished["other"] or unfinished["string"] + unfinished["end"]
            if len(self._rest) > _LONGEST_SEQUENCE:
                self._rest = "\x1b[?"
        shown: list[str] = []
        for number, piece in enumerate(_STRINGS.sub("", text).split("\r")):
            self._returned |= number > 0
            if piece and self._returned:
                self._returned = False
                if not piece.startswith("\n"):
                    shown.append("\r\x1b[K")
            cleaned = clean(piece)
            self._coloured |= "\x1b" in cleaned
            shown.append(cleaned)
        return "".join(shown)


def _cut(text: str, width: int) -> str:
    """Cut a text to a width, but not inside a colour sequence."""
    return re.sub(r"\x1b\[?[\d;]*$", "", text[:width])


def one_line(command: bytes, width: int = 200) -> str:
    """Format a command as one line, cut to a width."""
    text = clean(" ".join(command.decode(errors="replace").split()))
    return text if len(text) <= width else _cut(text, width - 1) + "…"


def last_lines(path: str, count: int = 5) -> list[str]:
    """Return the last lines of a log as a terminal shows them; none if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            data = file.read()
    except OSError:
        return []
    lines = data.decode(errors="replace").rstrip().split("\n")[-count:]
    # A carriage return starts the line over: only the last part was visible.
    return [
        _cut(clean(line.rstrip("\r").rpartition("\r")[2]), 500) for line in lines if line.strip()
    ]
