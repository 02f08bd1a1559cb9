"""Random permutation of the numbers below a limit, computed without a list of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

_ROUNDS = 4


class Permutation:
    """Yields each number below `size` once: a Feistel network over the next even power of two."""

    def __init__(self, size: int, seed: str) -> None:
        self._size = size
        self._seed = seed
        self._half = max(1, ((size - 1).bit_length() + 1) // 2)

    def __iter__(self) -> Iterator[int]:
        return map(self._at, range(self._size))

    def _at(self, number: int) -> int:
        # A number outside is mixed again: the network is a permutation, so this ends.
        while (number := self._mix(number)) >= self._size:
            pass
        return number

    def _mix(self, number: int) -> int:
        mask = (1 << self._half) - 1
        left, right = number >> self._half, number & mask
        for turn in range(_ROUNDS):
            data = f"{self._seed}/{turn}/{right}".encode()
            digest = hashlib.blake2b(data, digest_size=16).digest()
            left, right = right, left ^ (int.from_bytes(digest, "big") & mask)
        return left << self._half | right
