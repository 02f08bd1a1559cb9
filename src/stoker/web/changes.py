"""Difference between two versions of a watched answer, as a tab can apply it to the text of the older one.

An answer is JSON. Its text is split between the objects of its lists, so that in a list of jobs or GPUs
only those that differ are sent.
"""

from __future__ import annotations

from msgspec import json

_BETWEEN = b"},{"
_WORTH = 0.6  # a difference longer than this part of the answer is not worth its handling


def describe_change(old: bytes, new: bytes) -> bytes | None:
    """Return `[START, END, [PIECE, …]]` or `{"INDEX": PIECE, …}`; None if that is not much shorter.

    The first replaces the pieces from START to END, the second single pieces.
    """
    before, after = old.split(_BETWEEN), new.split(_BETWEEN)
    if len(before) == len(after):
        pieces = {
            str(index): piece.decode()
            for index, (was, piece) in enumerate(zip(before, after, strict=True))
            if was != piece
        }
        change = json.encode(pieces)
    else:
        start, end = _common_ends(before, after)
        middle = [piece.decode() for piece in after[start : len(after) - end]]
        change = json.encode([start, len(before) - end, middle])
    return change if len(change) < _WORTH * len(new) else None


def _common_ends(before: list[bytes], after: list[bytes]) -> tuple[int, int]:
    """Return how many pieces are the same at the start, and how many of the others at the end."""
    shortest = min(len(before), len(after))
    start = 0
    while start < shortest and before[start] == after[start]:
        start += 1
    end = 0
    while end < shortest - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return start, end
