"""Which jobs are alike, so that what was learned of one tells something of the next."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"[\d.]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")
_LONGEST = 120


def kind_of(project: str | None, name: str | None, words: list[str]) -> str:
    """The kind of a job: its project, and its name without digits, else its program and script."""
    what = _DIGITS.sub("#", name) if name else _program(words)
    return f"{project or ''}/{what}"[:_LONGEST]


def _program(words: list[str]) -> str:
    """A program and what it runs: `python train.py`, `python -m train`; options differ from run to run."""
    rest = [word for word in words if not _ASSIGNMENT.fullmatch(word)] or words
    program = rest[0].rpartition("/")[2] if rest else ""
    for at, word in enumerate(rest[1:], 1):
        if word == "-m":
            return f"{program} {' '.join(rest[at : at + 2])}"
        if not word.startswith("-"):
            return f"{program} {word}"
    return program
