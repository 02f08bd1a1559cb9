"""Query strings from typed values."""

from __future__ import annotations

import msgspec

from stoker import wire
from stoker.client.transport import quote

Value = str | int | float | bool | list[str] | None


def make_query(selection: wire.Selection | None = None, **values: Value) -> str:
    """The question mark and what follows it; what is None, or a selection's default, is left out."""
    given = {} if selection is None else _of_selection(selection)
    words = [
        f"{name}={quote(_spell(each))}"
        for name, value in {**given, **values}.items()
        if value is not None
        for each in (value if isinstance(value, list) else [value])
    ]
    return "?" + "&".join(words) if words else ""


def _of_selection(selection: wire.Selection) -> dict[str, Value]:
    values: dict[str, Value] = {
        "ids": selection.ids,
        "states": [state.value for state in selection.states],
        "project": selection.project,
        "all": selection.all or None,
    }
    return values


def _spell(value: str | float | bool) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
