"""Expansion of a space into its runs, one at a time: they are never all in memory.

Draws depend only on the seed, on the parameter and on their number. So a sweep that gets more values or more
samples keeps the runs it had.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from itertools import accumulate

from stoker.errors import UsageError
from stoker.sweeps.cell import Cell, make_cell
from stoker.sweeps.space import SEED, Axis, Block, Dimension, Draw, Method, Row, Space

Point = dict[str, Cell]

_MOST_TRIES_A_RUN = 1000
_MIXING_ROUNDS = 4
_FEWEST_TRIES = 100_000


class Expansion:
    """The points of a space in order. `duplicates` counts those dropped so far.

    Of an adaptive method they are random examples.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._sampled = space.method is not Method.GRID
        self.duplicates = 0
        self.missing = 0  # requested samples that the space does not have

    def __iter__(self) -> Iterator[Point]:
        self.duplicates = self.missing = 0
        space = self._space
        points = self._sample() if self._sampled else self._grid()
        if space.repeats is None:
            return points
        return self._repeat(points, space.repeats)

    def _repeat(self, points: Iterator[Point], repeats: int) -> Iterator[Point]:
        seeds = [make_cell(number) for number in range(repeats)]
        for point in points:
            for seed in seeds:
                yield {**point, SEED: seed}

    def _grid(self) -> Iterator[Point]:
        space = self._space
        points: Iterator[Point] = (
            point for block in space.blocks for point in self._product(block)
        )
        if len(space.blocks) > 1 or any(block.draws for block in space.blocks):
            points = self._distinct(points)
        kept = points if not space.exclude else (p for p in points if not self._is_excluded(p))
        if space.samples is None or any(block.draws for block in space.blocks):
            yield from kept
            return
        for _number, point in zip(range(space.samples), kept, strict=False):
            yield point

    def _is_excluded(self, point: Point) -> bool:
        return any(condition.holds(point) for condition in self._space.exclude)

    def _distinct(self, points: Iterator[Point]) -> Iterator[Point]:
        seen: set[bytes] = set()
        for point in points:
            digest = digest_of(point)
            if digest in seen:
                self.duplicates += 1
            else:
                seen.add(digest)
                yield point

    def _product(self, block: Block) -> Iterator[Point]:
        fixed = self._space.fixed
        if block.draws or any(each.when is not None for each in block.dimensions):
            return self._branch(block.dimensions, dict(fixed), None)
        return (dict(row) for row in _rows(fixed, block.axes))

    def _branch(
        self, dimensions: Sequence[Dimension], point: Point, sample: tuple[bytes, int] | None
    ) -> Iterator[Point]:
        """Yield the points below this one, and decide conditions and draws on the way."""
        if not dimensions:
            yield point
            return
        first, rest = dimensions[0], dimensions[1:]
        if isinstance(first, Draw) and sample is None:
            key = digest_of(point)
            for number in range(self._space.samples or 0):
                yield from self._branch(dimensions, point, (key, number))
        elif first.when is not None and not first.when.holds(point):
            yield from self._branch(rest, point, sample)
        elif isinstance(first, Axis):
            for row in first:
                yield from self._branch(rest, {**point, **dict(row)}, sample)
        else:
            assert sample is not None
            cell = self._draw(first, *sample)
            yield from self._branch(rest, {**point, first.names[0]: cell}, sample)

    def _draw(self, draw: Draw, key: bytes, number: int) -> Cell:
        u = _uniform(self._space.seed, key, number, draw.names[0])
        return make_cell(draw.distribution.draw(u))

    def _shuffle(self) -> Iterator[Point]:
        """Yield every distinct point of a finite space in random order."""
        points = (self._at(place, number) for number, place in enumerate(self._places()))
        return self._distinct(point for point in points if not self._is_excluded(point))

    def _sample(self) -> Iterator[Point]:
        """Yield distinct random points: as many as requested, or all there are."""
        space = self._space
        if space.samples is None:
            yield from self._shuffle()
            return
        places = self._places()
        seen: set[bytes] = set()
        tries = 0
        most = max(_FEWEST_TRIES, space.samples * _MOST_TRIES_A_RUN)
        for number, place in enumerate(places):
            if len(seen) == space.samples:
                return
            tries += 1
            if tries > most and not space.is_finite:
                break
            if tries > most:
                raise UsageError(
                    f"the conditions left only {len(seen)} of {most:,} combinations tried:"
                    " ask for fewer samples, or exclude less"
                )
            point = self._at(place, number)
            if self._is_excluded(point):
                continue
            digest = digest_of(point)
            if digest in seen:
                self.duplicates += 1
                continue
            seen.add(digest)
            yield point
        self.missing = space.samples - len(seen)
        self.duplicates = 0  # replaced by further draws

    def _places(self) -> Iterator[int]:
        """Yield the numbers of combinations to try: each once, or without end if drawn with replacement."""
        seed, total = self._space.seed, sum(map(size_of, self._space.blocks))
        if self._space.is_finite:
            return iter(Permutation(total, str(seed)))
        return self._endless(seed, total)

    def _endless(self, seed: int, total: int) -> Iterator[int]:
        number = 0
        while True:
            yield min(total - 1, int(_uniform(seed, b"", number, "") * total))
            number += 1

    def _at(self, place: int, number: int) -> Point:
        """Return the combination of this number: mixed-radix digits, the last axis counting fastest."""
        for block in self._space.blocks:
            size = size_of(block)
            if place < size:
                break
            place -= size
        digits: dict[int, int] = {}
        for axis in reversed(block.axes):
            place, digits[id(axis)] = divmod(place, len(axis))
        point: Point = dict(self._space.fixed)
        for each in block.dimensions:
            if each.when is not None and not each.when.holds(point):
                continue
            if isinstance(each, Draw):
                point[each.names[0]] = self._draw(each, b"", number)
            else:
                point.update(self._pick(each, digits[id(each)], number))
        return point

    def _pick(self, axis: Axis, digit: int, number: int) -> Row:
        if axis.weights is None:
            return axis[digit]
        u = _uniform(self._space.seed, b"", number, axis.names[0])
        chosen = (place for place, edge in enumerate(accumulate(axis.weights)) if u < edge)
        return axis[next(chosen, len(axis) - 1)]


class Permutation:
    """Each number below `size` once, in random order and without a list of them.

    It is a Feistel network over the next even power of two.
    """

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
        for turn in range(_MIXING_ROUNDS):
            data = f"{self._seed}/{turn}/{right}".encode()
            digest = hashlib.blake2b(data, digest_size=16).digest()
            left, right = right, left ^ (int.from_bytes(digest, "big") & mask)
        return left << self._half | right


def size_of(block: Block) -> int:
    """Return the number of combinations of a block's axes if all conditions are true."""
    return math.prod(map(len, block.axes))


def digest_of(point: Point) -> bytes:
    """Return a digest that identifies a point."""
    text = ",".join([f"{name}:{point[name].json}" for name in sorted(point)])
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _rows(start: Row, axes: Sequence[Axis]) -> Iterator[Row]:
    """Yield the product of axes, the last varying fastest, without keeping it in memory."""
    if not axes:
        yield start
        return
    *others, last = axes
    for row in _rows(start, others):
        for more in last:
            yield row + more


def _uniform(seed: int, key: bytes, number: int, name: str) -> float:
    """Return a number between 0 and 1, both excluded, that depends only on the arguments."""
    data = f"{seed}/{number}/{name}/".encode() + key
    bits = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") >> 11
    return (bits + 0.5) / (1 << 53)
