"""Parsing and formatting of memory sizes."""

from __future__ import annotations

import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([KMGT]?)(?:i?B)?", re.IGNORECASE)
_LEAST = 1 << 20
_MOST = 1 << 50


def parse_size(text: str) -> int:
    """Parse `10G`, `1.5GiB` or `800M` into bytes; raise ValueError for other text."""
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if size < _LEAST:
        raise ValueError(f"{text!r} is not an amount of memory: write 10G, 1.5G or 800M")
    if size > _MOST:
        raise ValueError(f"{text!r} is more memory than any machine has: write 10G, 1.5G or 800M")
    return size


def format_bytes(count: int | None) -> str:
    """Write an amount of memory in GiB."""
    return "? GiB" if count is None else f"{count / 2**30:.1f} GiB"


def format_memory(count: int) -> str:
    """Write an amount of RAM: `32 GiB`, `1.5 GiB`, `800 MiB`."""
    unit, power = ("GiB", 30) if count >= 1 << 30 else ("MiB", 20)
    return f"{count / (1 << power):.1f}".removesuffix(".0") + f" {unit}"
