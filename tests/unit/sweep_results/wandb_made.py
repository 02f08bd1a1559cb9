"""Makes files as W&B writes them offline."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

BLOCK = 32 << 10
HISTORY, SUMMARY, OUTPUT = 2, 3, 4


def varint(number: int) -> bytes:
    rest = number >> 7
    return bytes([number & 127 | (128 if rest else 0)]) + (varint(rest) if rest else b"")


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def record(kind: int, values: Mapping[str, object]) -> bytes:
    """A record of the history or the summary; names with dots are nested keys."""
    items = b""
    for name, value in values.items():
        key, *inner = name.split(".")
        keys = b"".join(field(2, part.encode()) for part in (key, *inner))
        keys = keys if inner else field(1, key.encode())
        items += field(1, keys + field(16, json.dumps(value).encode()))
    return varint(1 << 3) + varint(7) + field(kind, items)


def log_file(*records: bytes) -> bytes:
    """The records as LevelDB's log has them: parts end at the ends of blocks."""
    data = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
    for content in records:
        begins, left = True, content
        while begins or left:
            room = BLOCK - len(data) % BLOCK
            if room < 7:
                data += b"\0" * room
                continue
            part, left = left[: room - 7], left[room - 7 :]
            kind = (1 if begins else 4) if not left else (2 if begins else 3)
            data += struct.pack("<IHB", 0, len(part), kind) + part
            begins = False
    return data
