"""Reader of the scalars in TensorBoard's event files, without TensorBoard.

A file is a series of records: length (8 bytes), its checksum (4), an Event in Protocol Buffers, its checksum
(4). A record that is cut off or damaged ends the file: a run that is killed leaves such files.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from stoker.sweep_results.metric_files.byte_tail import ByteTail
from stoker.sweep_results.metric_files.entry import Batch, Entry
from stoker.sweep_results.metric_files.protobuf import DAMAGED, DOUBLE, FLOAT, fields

MARK = "events.out.tfevents."
"""What the name of an event file contains."""

_LENGTH = struct.Struct("<Q")
_NUMBERS: Mapping[object, struct.Struct] = {1: FLOAT, 2: DOUBLE}  # by the type of a tensor
# Numbers of fields in the messages of TensorBoard.
_EVENT_STEP, _EVENT_SUMMARY = 2, 5
_SUMMARY_VALUE = 1
_VALUE_TAG, _VALUE_SIMPLE, _VALUE_TENSOR = 1, 2, 8
_TENSOR_TYPE, _TENSOR_CONTENT, _TENSOR_FLOATS, _TENSOR_DOUBLES = 1, 4, 5, 6


class EventFiles:
    """Reads the event files of a run together, in the order of their steps."""

    def __init__(self) -> None:
        self._tails: dict[str, ByteTail] = {}
        self._damaged: set[str] = set()
        self.paths: list[str] = []
        """The files to read, the oldest first."""

    def read(self, *, is_last: bool) -> Batch:  # noqa: ARG002 - a record counts when it is whole
        """Return the scalars of the events that were added, with their steps."""
        found: list[Entry] = []
        for path in self.paths:
            tail = self._tails.setdefault(path, ByteTail(path))
            if path in self._damaged:
                continue
            for data in tail.chunks():
                used, scalars, is_damaged = read_scalars(data)
                found += scalars
                if is_damaged:
                    self._damaged.add(path)
                    break
                tail.accept(used)
        return Batch(sorted(found, key=lambda scalars: int(scalars["step"])))


def read_scalars(data: bytes) -> tuple[int, list[Entry], bool]:
    """Return how many bytes are whole records, their scalars, and whether what follows is damaged."""
    at = 0
    found: list[Entry] = []
    while at + 12 <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        end = at + 12 + length
        if end + 4 > len(data):
            break
        try:
            scalars = _event(data[at + 12 : end])
        except DAMAGED:
            return at, found, True
        if len(scalars) > 1:
            found.append(scalars)
        at = end + 4
    return at, found, False


def _event(data: bytes) -> Entry:
    found: Entry = {"step": 0}
    for number, value in fields(data):
        if number == _EVENT_STEP and isinstance(value, int):
            found["step"] = value
        elif number == _EVENT_SUMMARY and isinstance(value, bytes):
            for inner, item in fields(value):
                if inner == _SUMMARY_VALUE and isinstance(item, bytes):
                    _add_value(found, item)
    return found


def _add_value(found: Entry, data: bytes) -> None:
    parts = dict(fields(data))
    tag, number = parts.get(_VALUE_TAG), parts.get(_VALUE_SIMPLE)
    tensor = parts.get(_VALUE_TENSOR)
    if isinstance(tensor, bytes):
        number = _tensor(dict(fields(tensor)))
    if isinstance(tag, bytes) and isinstance(number, float) and tag != b"step":
        found[tag.decode("utf-8", "replace")] = number


def _tensor(parts: dict[int, int | float | bytes]) -> float | None:
    """Return the number of a tensor that has only one."""
    kind = _NUMBERS.get(parts.get(_TENSOR_TYPE))
    for field in (_TENSOR_CONTENT, _TENSOR_FLOATS, _TENSOR_DOUBLES):
        content = parts.get(field)
        if isinstance(content, float):
            return content
        if isinstance(content, bytes) and kind is not None and len(content) == kind.size:
            return float(kind.unpack(content)[0])
    return None
