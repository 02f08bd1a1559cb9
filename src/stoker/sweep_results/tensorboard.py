"""Reader of the scalars in TensorBoard's event files, without TensorBoard.

A file is a series of records: length (8 bytes), its checksum (4), an Event in Protocol Buffers, its checksum
(4). A record that is cut off or damaged ends the file: a run that is killed leaves such files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

_LENGTH = struct.Struct("<Q")
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_DT_FLOAT, _DT_DOUBLE = 1, 2
# Numbers of fields in the messages of TensorBoard.
_EVENT_STEP, _EVENT_SUMMARY = 2, 5
_SUMMARY_VALUE = 1
_VALUE_TAG, _VALUE_SIMPLE, _VALUE_TENSOR = 1, 2, 8
_TENSOR_TYPE, _TENSOR_CONTENT, _TENSOR_FLOATS, _TENSOR_DOUBLES = 1, 4, 5, 6


def read_scalars(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the scalars of each event, with its step."""
    at = 0
    while at + 12 <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        end = at + 12 + length
        if end > len(data):
            return
        try:
            scalars = _event(data[at + 12 : end])
        except (ValueError, IndexError, struct.error):
            return
        if len(scalars) > 1:
            yield scalars
        at = end + 4


def _event(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"step": 0}
    for number, value in _fields(data):
        if number == _EVENT_STEP and isinstance(value, int):
            found["step"] = value
        elif number == _EVENT_SUMMARY and isinstance(value, bytes):
            for inner, item in _fields(value):
                if inner == _SUMMARY_VALUE and isinstance(item, bytes):
                    _add_value(found, item)
    return found


def _add_value(found: dict[str, Any], data: bytes) -> None:
    fields = dict(_fields(data))
    tag, number = fields.get(_VALUE_TAG), fields.get(_VALUE_SIMPLE)
    tensor = fields.get(_VALUE_TENSOR)
    if isinstance(tensor, bytes):
        number = _tensor(dict(_fields(tensor)))
    if isinstance(tag, bytes) and isinstance(number, float) and tag != b"step":
        found[tag.decode("utf-8", "replace")] = number


def _tensor(fields: dict[int, int | float | bytes]) -> float | None:
    """Return the number of a tensor that has only one."""
    kind = {_DT_FLOAT: _FLOAT, _DT_DOUBLE: _DOUBLE}.get(int(fields.get(_TENSOR_TYPE, 0)))
    for field in (_TENSOR_CONTENT, _TENSOR_FLOATS, _TENSOR_DOUBLES):
        content = fields.get(field)
        if isinstance(content, float):
            return content
        if isinstance(content, bytes) and kind is not None and len(content) == kind.size:
            return float(kind.unpack(content)[0])
    return None


def _fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Yield the fields of a message: varints as int, fixed numbers as float, the rest as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        value: int | float | bytes
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 1:
            value, at = _DOUBLE.unpack_from(data, at)[0], at + 8
        elif kind == 5:
            value, at = _FLOAT.unpack_from(data, at)[0], at + 4
        elif kind == 2:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
            if at > len(data):
                raise ValueError("a field is cut off")
        else:
            raise ValueError(f"a field has the unknown type {kind}")
        yield key >> 3, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("a number is too long")
