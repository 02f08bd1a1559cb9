"""Overrides: parameters on the command line replace those of the sweep file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stoker.errors import UsageError
from stoker.sweeps.inline import Word, read_word
from stoker.sweeps.parameters import Reader
from stoker.sweeps.space import Axis, Dimension
from stoker.sweeps.tree import DefinitionError, did_you_mean

Blocks = list[list[Dimension]]


def override(
    fixed: dict[str, Any], blocks: Blocks, words: Sequence[str], reader: Reader, *, strict: bool
) -> tuple[dict[str, Any], Blocks]:
    """Return fixed parameters and blocks with the overrides applied.

    With `strict`, an unknown name is an error unless a `+` marks it as new.
    """
    fixed, blocks = dict(fixed), [list(block) for block in blocks]
    typed: set[str] = set()
    for text in words:
        word = read_word(text)
        twice = typed & set(word.names)
        if twice:
            raise UsageError(f"{', '.join(sorted(twice))} is given twice: write lr=1,2")
        typed |= set(word.names)
        try:
            dimension = reader.dimension(word.names, word.values)
        except DefinitionError as error:
            raise UsageError(f"{','.join(word.names)}: {error}") from None
        _place(fixed, blocks, word, dimension, strict=strict)
    return fixed, blocks


def _place(
    fixed: dict[str, Any], blocks: Blocks, word: Word, dimension: Dimension, *, strict: bool
) -> None:
    names = set(word.names)
    known = {*fixed, *(name for block in blocks for each in block for name in each.names)}
    _check(word, known, strict=strict)
    is_constant = isinstance(dimension, Axis) and len(dimension) == 1
    if names <= set(fixed) and is_constant and isinstance(dimension, Axis):
        fixed.update((name, cell.value) for name, cell in dimension[0])
        return
    everywhere = not (known - set(fixed)) & names
    for name in names & set(fixed):
        del fixed[name]
    for block in blocks:
        places = [place for place, each in enumerate(block) if names & set(each.names)]
        for place in reversed(places):
            others = set(block[place].names) - names
            if others:
                raise UsageError(
                    f"{', '.join(sorted(names))} is zipped with {', '.join(sorted(others))}:"
                    f" give them together, as in a,b=zip([1,2],[3,4])"
                )
            del block[place]
        if places or everywhere:
            block.insert(places[0] if places else len(block), dimension)


def _check(word: Word, known: set[str], *, strict: bool) -> None:
    for name in word.names:
        if word.adds and name in known:
            raise UsageError(f"+{name}: the sweep already has it; leave out the +")
        if strict and not word.adds and name not in known:
            raise UsageError(
                f"the sweep has no parameter {name}: {did_you_mean(name, sorted(known))};"
                f" to add it, write +{name}=…"
            )
