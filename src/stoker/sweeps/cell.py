"""A parameter's value in all forms that runs need, made once for all runs that share it."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from stoker.sweeps.tree import DefinitionError


class Cell(msgspec.Struct, frozen=True, gc=False):
    """A value: as Python, as canonical JSON, as program text, and as a shell word."""

    value: Any
    json: str
    text: str
    quoted: str


def make_cell(value: Any) -> Cell:
    """Make all forms of a value; raise DefinitionError if it cannot be a parameter."""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        text = repr(value)  # numbers are the most frequent case, and equal in every form
        return Cell(value, text, text, text)
    plain = _plain(value)
    text = to_text(plain)
    return Cell(plain, to_json(plain), text, shlex.quote(text))


def to_json(value: Any) -> str:
    """Return canonical JSON: equal values have equal text."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def to_text(value: Any) -> str:
    """Return a value as a program gets it: as Python prints it; lists and mappings as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _plain(value: Any) -> Any:
    if not isinstance(value, (str, int, float, bool, type(None), list, tuple, Mapping)):
        item = getattr(value, "item", None)  # a number of numpy or torch
        if not callable(item):
            raise DefinitionError(f"{value!r} is not a number, text, list or mapping")
        value = item()
    match value:
        case str():
            check_text(value)
            return str(value)
        case float() if not math.isfinite(value):
            raise DefinitionError(f"{value} has no JSON: put it in quotes to pass it as a text")
        case list() | tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return {_key(key): _plain(item) for key, item in value.items()}
    return value


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise DefinitionError(f"the key {key!r} is not a text")
    check_text(key)
    return key


def check_text(text: str) -> None:
    """Raise DefinitionError for a text that cannot be passed to a program."""
    if "\0" in text:
        raise DefinitionError("a text contains a NUL byte, which no program accepts")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DefinitionError(f"{text!r} is not valid Unicode text") from None
