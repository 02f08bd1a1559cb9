"""What a run is, whatever it is called: the same parameters in the same command are the same run."""

from __future__ import annotations

import hashlib

from stoker.sweeps.cell import Cell, to_json

Point = dict[str, Cell]

MAX_FOLDER = 80
_MAX_BYTES = 200
_SHORT, _LONG = 8, 16
_KEPT_LABELS = 100_000
_FRIENDLY = frozenset("._+-@%^~")


def params_json(point: Point) -> str:
    """Parameters as canonical JSON."""
    return "{" + ",".join([f"{_key(name)}:{point[name].json}" for name in sorted(point)]) + "}"


def _key(name: str) -> str:
    return f'"{name}"'  # a parameter's name holds nothing that JSON would escape


class Namer:
    """Gives runs of one command their identities and folders."""

    def __init__(self, command: str, varied: list[str]) -> None:
        self._start = f'{{"command":{to_json(command)},"params":'.encode()
        self._varied = varied
        self._labels: dict[str, tuple[str, bool]] = {}

    def identity(self, params: str) -> str:
        """The sha256 of the canonical JSON of the parameters and the command's template."""
        return hashlib.sha256(self._start + params.encode() + b"}").hexdigest()

    def folder(self, point: Point, identity: str) -> str:
        """`lr=0.001,bs=32-<hash>`: what varies, made fit for a path, and never another run's.

        A name that had to be changed or cut could be another's too, and gets a longer hash.
        """
        exact = True
        parts = []
        for name in self._varied:
            cell = point.get(name)
            if cell is None:
                continue
            label, same = self._labels.get(cell.json) or self._label(cell)
            exact = exact and same
            parts.append(f"{name}={label}")
        text = ",".join(parts) or "run"
        if "/" in text:
            text, exact = text.replace("/", "_"), False
        room = MAX_FOLDER - 1 - _LONG
        if len(text) > room or len(text.encode()) > _MAX_BYTES:
            text, exact = _cut(text, room), False
        return f"{text}-{identity[: _SHORT if exact else _LONG]}"

    def _label(self, cell: Cell) -> tuple[str, bool]:
        label = "".join(char if char.isalnum() or char in _FRIENDLY else "_" for char in cell.text)
        if len(self._labels) > _KEPT_LABELS:
            self._labels.clear()
        # A text that could also be another kind of value is told from it by the longer hash.
        same = label == cell.text and bool(label) and not isinstance(cell.value, (str, bool))
        same = same or (label == cell.text and label.isidentifier())
        self._labels[cell.json] = label, same
        return label, same


def safe_label(cell: Cell) -> str:
    """A value as a part of a path."""
    label = "".join(char if char.isalnum() or char in _FRIENDLY else "_" for char in cell.text)
    return _cut(label, MAX_FOLDER).lstrip(".") or "_"


def _cut(text: str, room: int) -> str:
    text = text[:room]
    while len(text.encode()) > _MAX_BYTES:
        text = text[:-1]
    return text
