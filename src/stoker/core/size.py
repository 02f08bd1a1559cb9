"""Parsing and formatting of memory sizes."""

from __future__ import annotations

import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([KMGT]?)(?:i?B)?", re.IGNORECASE)
_LEAST = 1 << 20


def parse_size(text: str) -> int:
    """Parse `10G`, `1.5GiB` or `800M` into bytes; raise ValueError for other text."""
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if size < _LEAST:
        raise ValueError(f"{text!r} is not an amount of GPU memory: write 10G, 1.5G or 800M")
    return size


def format_bytes(count: int | None) -> str:
    """Write an amount of memory in GiB."""
    return "? GiB" if count is None else f"{count / 2**30:.1f} GiB"
