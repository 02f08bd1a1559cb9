"""A verb's arguments as data, and a quick reader of ordinary command lines.

Importing argparse costs as much as half of starting Python. `parse_quickly` reads what is plain;
help, mistakes, abbreviations and several positional arguments are left to argparse (parser.py).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Argument = tuple[tuple[str, ...], dict[str, Any]]


def arg(*flags: str, **details: Any) -> Argument:
    """Describe an argument as argparse's `add_argument` takes it.

    Two details are ours: only one argument with the same `exclusive` may be given, and the value of
    a `signed` one may begin with a minus.
    """
    return flags, details


# For the verbs whose -n was a name in the first days of Stoker.
NAME_MISTAKES = (
    ("unrecognized arguments: -n", "-n is a number in other verbs: a name follows -N or --name"),
)
# How a job is preempted and ended, for `add` and `sweep`.
PREEMPTION = (
    arg("--preemptible", action="store_true", help="jobs with --preempt may push it out"),
    arg("--preempt", action="store_true", help="push out preemptible jobs of no higher priority"),
    arg(
        "--checkpoint",
        choices=("hf", "lightning", "submitit"),
        metavar="HOW",
        help="the signal and grace with which hf, lightning or submitit saves a checkpoint and ends",
    ),
    arg("--signal", metavar="SIG", help="how it is asked to end: USR2 (default: TERM)"),
    arg("--grace", metavar="TIME", help="from that signal to KILL (default: 10s)"),
)
JSON = arg("--json", action="store_true", help="as JSON, for programs")


class Args:
    """The values of a command line, by name."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...


class _NotPlainError(Exception):
    """Leaves a command line to argparse."""


class _Option:
    """One option."""

    def __init__(self, flags: Sequence[str], details: dict[str, Any]) -> None:
        action = details.get("action", "store")
        if action not in ("store", "store_true", "append") or not _OPTION_DETAILS.issuperset(
            details
        ):
            raise _NotPlainError
        long = next((flag for flag in flags if flag.startswith("--")), flags[0])
        self.name = long.lstrip("-").replace("-", "_")
        self.is_switch = action == "store_true"
        self.is_list = action == "append"
        self.default = False if self.is_switch else details.get("default")
        self._type = details.get("type", str)
        self._choices = details.get("choices")

    def read(self, text: str) -> Any:
        """Convert the text of a value."""
        try:
            value = self._type(text)
        except ValueError:
            raise _NotPlainError from None
        if self._choices is not None and value not in self._choices:
            raise _NotPlainError
        return value


_OPTION_DETAILS = frozenset(("action", "choices", "default", "help", "metavar", "type"))
_WORDS_DETAILS = frozenset(("help", "metavar", "nargs"))


class _Reader:
    """Reads options, and one positional argument: a word, words, or all words that follow."""

    def __init__(self, arguments: Sequence[Argument]) -> None:
        self._options: dict[str, _Option] = {}
        self._rest: str | None = None
        self._words: str | None = None
        self._nargs: str | None = None
        for flags, details in arguments:
            if flags[0].startswith("-"):
                self._options.update(dict.fromkeys(flags, _Option(flags, details)))
            elif (self._rest or self._words) is not None:
                raise _NotPlainError
            elif details.get("nargs") == "...":
                self._rest = flags[0]
            elif _WORDS_DETAILS.issuperset(details) and details.get("nargs", "*") in "*?":
                self._words = flags[0]
                self._nargs = details.get("nargs")
            else:
                raise _NotPlainError

    def read(self, words: Sequence[str]) -> Args:
        """Return the values of a command line; raises _NotPlainError for one that is not plain."""
        values: dict[str, Any] = {option.name: option.default for option in self._options.values()}
        at = self._read_options(words, 0, values)
        if self._rest is not None:
            values[self._rest] = list(words[at:])
            return Args(**values)
        begin = at
        while at < len(words) and not words[at].startswith("-"):
            at += 1
        found = list(words[begin:at])
        if self._read_options(words, at, values) < len(words):
            raise _NotPlainError
        if self._words is not None:
            values[self._words] = self._value(found)
        elif found:
            raise _NotPlainError
        return Args(**values)

    def _value(self, found: list[str]) -> list[str] | str | None:
        """Return the value of the positional argument."""
        if self._nargs == "*":
            return found
        if len(found) == 1:
            return found[0]
        if found or self._nargs is None:
            raise _NotPlainError
        return None

    def _read_options(self, words: Sequence[str], at: int, values: dict[str, Any]) -> int:
        """Read the options from a word on; returns the number of the word behind them."""
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
        return at

    def _find(self, word: str) -> tuple[_Option, str | None]:
        """Return the option that a word names, and the value in the word if it has one."""
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


def parse_quickly(arguments: Sequence[Argument], words: Sequence[str]) -> Args | None:
    """Read a command line; None if argparse has to."""
    try:
        return _Reader(arguments).read(words)
    except _NotPlainError:
        return None
