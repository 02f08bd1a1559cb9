"""Reader of messages in Protocol Buffers, without their schema."""

from __future__ import annotations

import struct
from collections.abc import Iterator

FLOAT, DOUBLE = struct.Struct("<f"), struct.Struct("<d")
DAMAGED = (ValueError, IndexError, OverflowError, RecursionError, struct.error)
"""What a reader raises for bytes that are no message, or for values out of range."""


def fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Yield the fields of a message: varints as int, fixed numbers as float, the rest as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        value: int | float | bytes
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 1:
            value, at = DOUBLE.unpack_from(data, at)[0], at + 8
        elif kind == 5:
            value, at = FLOAT.unpack_from(data, at)[0], at + 4
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
