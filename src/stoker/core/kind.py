"""The kind of a job: jobs of one kind are alike, so measurements of one predict the next."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"[\d.]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")
_LONGEST = 120


def kind_of(project: str | None, name: str | None, words: list[str]) -> str:
    """Return the job's kind: its project, and its name without digits or else its program and script."""
    what = _DIGITS.sub("#", name) if name else _program(words)
    return f"{project or ''}/{what}"[:_LONGEST]


def _program(words: list[str]) -> str:
    """Return the program and its script (`python train.py`, `python -m train`) without options."""
    rest = [word for word in words if not _ASSIGNMENT.fullmatch(word)] or words
    program = rest[0].rpartition("/")[2] if rest else ""
    for at, word in enumerate(rest[1:], 1):
        if word == "-m":
            return f"{program} {' '.join(rest[at : at + 2])}"
        if not word.startswith("-"):
            return f"{program} {word}"
    return program
