"""Amounts of memory, as people write and read them."""

from __future__ import annotations

import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([KMGT]?)(?:i?B)?", re.IGNORECASE)
_LEAST = 1 << 20


def parse_size(text: str) -> int:
    """Read `10G`, `1.5GiB`, `800M` as bytes; raises ValueError where that is no amount of memory."""
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if size < _LEAST:
        raise ValueError(f"{text!r} is no amount of GPU memory: write 10G, 1.5G or 800M")
    return size


def format_bytes(count: int | None) -> str:
    """Write an amount of memory for people."""
    return "? GiB" if count is None else f"{count / 2**30:.1f} GiB"
