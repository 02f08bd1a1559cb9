"""Identity of a run: the same parameters in the same command are the same run."""

from __future__ import annotations

import hashlib

from stoker.sweeps.cell import Cell, to_json

Point = dict[str, Cell]

MAX_FOLDER = 80
_MAX_BYTES = 200
_SHORT, _LONG = 8, 16
_KEPT_LABELS = 100_000
_FRIENDLY = frozenset("._+-@%^~")


class Namer:
    """Makes the identities and folder names of the runs of one command, and caches shared parts."""

    def __init__(self, command: str, varied: list[str]) -> None:
        self._start = f'{{"command":{to_json(command)},"params":'.encode()
        self._labels: list[tuple[str, dict[str, tuple[str, bool]]]] = [
            (each, {}) for each in varied
        ]
        self._forms: dict[tuple[str, ...], tuple[list[str], str]] = {}

    def params(self, point: Point) -> str:
        """Return the parameters as canonical JSON."""
        key = tuple(point)
        names, form = self._forms.get(key) or self._form(key)
        return form % tuple([point[name].json for name in names])

    def _form(self, key: tuple[str, ...]) -> tuple[list[str], str]:
        names = sorted(key)
        # A parameter's name contains no character that JSON would escape.
        form = ",".join(['"' + name.replace("%", "%%") + '":%s' for name in names])
        found = self._forms[key] = names, "{" + form + "}"
        return found

    def identity(self, params: str, trial: str = "") -> str:
        """Return the sha256 of the canonical JSON of the parameters and the command template.

        A `trial` tells apart runs that an adaptive method gave the same parameters.
        """
        end = f',"trial":{to_json(trial)}}}'.encode() if trial else b"}"
        return hashlib.sha256(self._start + params.encode() + end).hexdigest()

    def folder(self, point: Point, identity: str) -> str:
        """Return the folder name `lr=0.001,bs=32-<hash>`: the varied parameters, in safe characters.

        A name that was changed or cut could belong to another run too, so it gets a longer hash.
        """
        exact = True
        parts = []
        for name, labels in self._labels:
            cell = point.get(name)
            if cell is None:
                continue
            label, same = labels.get(cell.json) or _label(name, cell, labels)
            exact = exact and same
            parts.append(label)
        text = ",".join(parts) or "run"
        room = MAX_FOLDER - 1 - _LONG
        if len(text) > room or not (text.isascii() or len(text.encode()) <= _MAX_BYTES):
            text, exact = _cut(text, room), False
        return f"{text}-{identity[: _SHORT if exact else _LONG]}"


def _label(name: str, cell: Cell, labels: dict[str, tuple[str, bool]]) -> tuple[str, bool]:
    """Return `name=value` for a folder name, and whether no other value has the same text."""
    value = "".join(char if char.isalnum() or char in _FRIENDLY else "_" for char in cell.text)
    if len(labels) > _KEPT_LABELS:
        labels.clear()
    # A text that looks like another type of value needs the longer hash.
    same = value == cell.text and bool(value) and not isinstance(cell.value, (str, bool))
    same = same or (value == cell.text and value.isidentifier())
    found = f"{name}={value}".replace("/", "_"), same and "/" not in name
    labels[cell.json] = found
    return found


def safe_label(cell: Cell) -> str:
    """Return a value as part of a path."""
    label = "".join(char if char.isalnum() or char in _FRIENDLY else "_" for char in cell.text)
    return _cut(label, MAX_FOLDER).lstrip(".") or "_"


def _cut(text: str, room: int) -> str:
    text = text[:room]
    while len(text.encode()) > _MAX_BYTES:
        text = text[:-1]
    return text
