"""The parser of every verb: complains in one line, and starts fast."""

from __future__ import annotations

import argparse
import os

from stoker.errors import UsageError

TYPE_CHECKING = False  # typing would cost as much as argparse
if TYPE_CHECKING:
    from typing import NoReturn


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Finds the width itself: argparse would import half of the library for that, also without -h."""

    def __init__(self, prog: str) -> None:
        try:
            width = os.get_terminal_size().columns - 2
        except OSError:
            width = 98
        super().__init__(prog, width=max(width, 40))


class Parser(argparse.ArgumentParser):
    """A verb's command line."""

    def __init__(self, prog: str, description: str, epilog: str) -> None:
        super().__init__(prog, description=description, epilog=epilog, formatter_class=_Formatter)

    def error(self, message: str) -> NoReturn:
        """Turn what argparse would print as a block into one line."""
        raise UsageError(f"{message}; see: {self.prog} -h")


def join_signed(words: list[str], flags: tuple[str, ...]) -> list[str]:
    """Let some flags take a value that begins with a minus: argparse sees it only behind a `=`."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in flags and word.startswith("-"):
            joined[-1] = f"{joined[-1]}={word}"
        else:
            joined.append(word)
    return joined
