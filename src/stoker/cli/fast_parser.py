"""Reads an ordinary command line without argparse, whose import costs as much as half of Python.

A verb's own `configure` says what there is to read. Whatever is not plain (help, a mistake, an
abbreviation) is left to argparse, which says the same about what is, and more about what is not.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


class Namespace:
    """The values of a command line, as argparse would have them."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)


class _NotPlainError(Exception):
    """This is for argparse."""


class _Option:
    """One option, as `add_argument` describes it."""

    def __init__(
        self,
        flags: Sequence[str],
        *,
        action: str = "store",
        type: Callable[[str], Any] = str,  # noqa: A002 - argparse's name for it
        default: Any = None,
        choices: Sequence[str] | None = None,
    ) -> None:
        if action not in ("store", "store_true", "append"):
            raise _NotPlainError
        long = next((flag for flag in flags if flag.startswith("--")), flags[0])
        self.name = long.lstrip("-").replace("-", "_")
        self.is_switch = action == "store_true"
        self.is_list = action == "append"
        self.default = False if self.is_switch else default
        self._type = type
        self._choices = choices

    def read(self, text: str) -> Any:
        """The value that a text stands for."""
        try:
            value = self._type(text)
        except ValueError:
            raise _NotPlainError from None
        if self._choices is not None and value not in self._choices:
            raise _NotPlainError
        return value


class FastParser:
    """Takes what a verb's `configure` describes: options, and a rest that is somebody else's."""

    def __init__(self) -> None:
        self._options: dict[str, _Option] = {}
        self._rest = ""

    def add_argument(self, *flags: str, **details: Any) -> None:
        """Describe an option, or the positional argument that takes all the rest."""
        details.pop("help", None)
        details.pop("metavar", None)
        if flags[0].startswith("-"):
            option = _Option(flags, **details)
            self._options.update(dict.fromkeys(flags, option))
        elif details == {"nargs": "..."}:
            self._rest = flags[0]
        else:
            raise _NotPlainError

    def parse(self, words: Sequence[str]) -> Namespace:
        """The values of a command line; raises _NotPlainError where argparse should have a look."""
        values: dict[str, Any] = {option.name: option.default for option in self._options.values()}
        at = 0
        while at < len(words) and words[at] != "--" and _looks_like_option(words[at]):
            option, text = self._find(words[at])
            at += 1
            if option.is_switch:
                if text is not None:
                    raise _NotPlainError
                values[option.name] = True
                continue
            if text is None:
                if at == len(words) or _looks_like_option(words[at]):
                    raise _NotPlainError
                text = words[at]
                at += 1
            value = option.read(text)
            if option.is_list:
                value = [*(values[option.name] or []), value]
            values[option.name] = value
        values[self._rest] = list(words[at:])
        return Namespace(values)

    def _find(self, word: str) -> tuple[_Option, str | None]:
        """The option that a word names, and the value in it if it has one."""
        option = self._options.get(word)
        if option is not None:
            return option, None
        if word.startswith("--"):
            name, has_value, value = word.partition("=")
            option = self._options.get(name)
            if option is not None and has_value:
                return option, value
        raise _NotPlainError


def _looks_like_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def parse_quickly(configure: Callable[[Any], None], words: Sequence[str]) -> Namespace | None:
    """Read a command line as a verb's `configure` describes it; None leaves it to argparse."""
    parser = FastParser()
    try:
        configure(parser)
        return parser.parse(words)
    except _NotPlainError:
        return None
