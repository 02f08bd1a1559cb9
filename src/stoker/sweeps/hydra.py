"""Formatting of values in Hydra's command-line grammar."""

from __future__ import annotations

import json
import re
from typing import Any

from stoker.sweeps.scalars import read_scalar

_BARE = re.compile(r"[A-Za-z_/.%@?|+*-][\w/.%@?|+*-]*", re.ASCII)
_BACKSLASHES_BEFORE_QUOTE = re.compile(r"(\\*)'")
_BACKSLASHES_AT_END = re.compile(r"(\\+)$")
_NUMBER_WORDS = ("inf", "nan", "true", "false", "null")


def to_hydra(value: Any) -> str:
    """Write a value in Hydra's grammar: `true`, `null`, `[1,2]`, texts quoted where necessary."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value if _is_bare(value) else _quote(value)
        case list():
            return f"[{','.join(map(to_hydra, value))}]"
        case dict():
            pairs = (f"{to_hydra(key)}:{to_hydra(item)}" for key, item in value.items())
            return f"{{{','.join(pairs)}}}"
    return json.dumps(value)


def _is_bare(text: str) -> bool:
    is_word = text.lstrip("+-").lower() not in _NUMBER_WORDS and read_scalar(text) == text
    return bool(_BARE.fullmatch(text)) and is_word


def _quote(text: str) -> str:
    """Put a text in single quotes; backslashes before a quote are doubled."""
    escaped = _BACKSLASHES_BEFORE_QUOTE.sub(lambda m: f"{m[1] * 2}\\'", text)
    escaped = _BACKSLASHES_AT_END.sub(lambda m: m[1] * 2, escaped)
    return f"'{escaped}'"
