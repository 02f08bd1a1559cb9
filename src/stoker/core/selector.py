"""Job selectors: `1,2,5-9`, `@` for the last job, a name, `project/name`, `project/name/id`."""

from __future__ import annotations

import re

import msgspec

from stoker.errors import UsageError

_NUMBER = re.compile(r"[0-9]{1,18}")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\s,/]")


class Span(msgspec.Struct, frozen=True):
    """A range of ids, both ends included."""

    first: int
    last: int


class Last(msgspec.Struct, frozen=True):
    """The job that was added last."""


class Named(msgspec.Struct, frozen=True):
    """The job with a name, optionally in a project, optionally with its id as a check."""

    name: str
    project: str | None = None
    id: int | None = None


Term = Span | Last | Named


def parse_selector(text: str) -> list[Term]:
    """Parse a list of jobs; commas and blanks separate its terms."""
    terms = [_term(word) for word in re.split(r"[,\s]+", text) if word]
    if not terms:
        raise UsageError("no job given: write ids (1,2,5-9), @ for the last job, or a name")
    return terms


def _term(word: str) -> Term:
    if word == "@":
        return Last()
    span = _RANGE.fullmatch(word)
    if span:
        first = int(span[1])
        last = int(span[2] or first)
        if last < first:
            raise UsageError(f"the range {word} is reversed: write {last}-{first}")
        return Span(first, last)
    match word.split("/"):
        case [name]:
            return Named(name)
        case [project, name] if project and name:
            return Named(name, project)
        case [project, name, number] if project and name and _NUMBER.fullmatch(number):
            return Named(name, project, int(number))
    raise UsageError(f"{word!r} is not a job: write an id, a name, project/name or project/name/id")


def check_name(kind: str, text: str, field: str | None = None) -> None:
    """Raise UsageError for a name that looks like an id or cannot be typed or used in a path."""
    if _FORBIDDEN.search(text):
        raise UsageError(
            f"{kind} {text!r} contains a blank, a comma, a / or a control character", field=field
        )
    if _RANGE.fullmatch(text) or text in ("@", ".", "..", "daemon") or text.startswith("-"):
        raise UsageError(
            f"{kind} {text!r} has another meaning on the command line: choose another", field=field
        )
