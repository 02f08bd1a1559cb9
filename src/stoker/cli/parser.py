"""Argparse for every verb: errors are one line, and `-h` imports no more than it needs."""

from __future__ import annotations

import argparse
import os
import re

from stoker.cli.arguments import Args
from stoker.errors import UsageError

TYPE_CHECKING = False  # importing typing would cost as much as argparse
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any, NoReturn

    from stoker.cli.arguments import Argument


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Finds the width itself: argparse would import shutil for that, also without -h."""

    def __init__(self, prog: str) -> None:
        try:
            width = os.get_terminal_size().columns - 2
        except OSError:
            width = 98
        super().__init__(prog, width=max(width, 40))


class Parser(argparse.ArgumentParser):
    """Parser of the command line of a program or of a verb.

    `mistakes` are patterns of argparse's messages, and what to say instead: a hint for a known mistake.
    """

    def __init__(
        self,
        prog: str,
        description: str,
        epilog: str,
        arguments: Sequence[Argument] = (),
        mistakes: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(prog, description=description, epilog=epilog, formatter_class=_Formatter)
        self._groups: dict[str, argparse._MutuallyExclusiveGroup] = {}
        self._signed: set[str] = set()
        self._numeric: set[str] = set()
        self._mistakes = tuple(mistakes)
        for flags, details in arguments:
            self._add(flags, **details)

    def _add(
        self, flags: tuple[str, ...], exclusive: str = "", signed: bool = False, **details: Any
    ) -> None:
        if signed:
            self._signed.update(flags)
        elif details.get("type") in (int, float):
            self._numeric.update(flags)
        if exclusive and exclusive not in self._groups:
            self._groups[exclusive] = self.add_mutually_exclusive_group()
        (self._groups[exclusive] if exclusive else self).add_argument(*flags, **details)

    def read(self, words: Sequence[str]) -> Args:
        """Return the values of a command line; raises UsageError for a mistake."""
        joined: list[str] = []
        for word in words:
            flag = joined[-1] if joined else ""
            is_signed = flag in self._signed or (flag in self._numeric and word[1:2].isdigit())
            if is_signed and word.startswith("-"):
                joined[-1] = f"{flag}={word}"  # argparse would take the word for an option
            else:
                joined.append(word)
        return self.parse_args(joined, Args())

    def error(self, message: str) -> NoReturn:
        """Raise an error of one line; argparse would print a block and exit."""
        for pattern, remedy in self._mistakes:
            if found := re.match(pattern, message):
                raise UsageError(found.expand(remedy))
        raise UsageError(f"{message}; see: {self.prog} -h")


def parser_of(verb: str, module: ModuleType) -> Parser:
    """Return the parser of a verb's module."""
    examples = f"examples:\n{module.EXAMPLES}"
    mistakes = getattr(module, "MISTAKES", ())
    return Parser(f"stoker {verb}", module.SUMMARY, examples, module.ARGUMENTS, mistakes)
