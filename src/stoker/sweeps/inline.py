"""Parser of values on the command line: `1e-3,3e-4`, `[64,64],[128]`, `'a b'`, `range(3)`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from stoker.errors import UsageError
from stoker.sweeps.functions import USAGE, Result, call, meant_function
from stoker.sweeps.scalars import read_scalar
from stoker.sweeps.tree import DefinitionError

_CALL = re.compile(r"\s*([A-Za-z_]+)\(")
_NAMES = re.compile(r"\+?[^\s=+][^=]*")
_CLOSING = {"[": "]", "{": "}", "(": ")"}


class Word(NamedTuple):
    """A typed `names=values`. `adds`: a leading `+` marks a new parameter."""

    names: tuple[str, ...]
    values: Result
    adds: bool


def read_word(word: str) -> Word:
    """Parse one parameter of the command line."""
    left, equals, right = word.partition("=")
    if not equals or not _NAMES.fullmatch(left):
        raise UsageError(f"'{word}' is not a parameter: write name=value, as in lr=1e-3,3e-4")
    names = tuple(name.strip() for name in left.removeprefix("+").split(","))
    try:
        values = read_values(right)
    except DefinitionError as error:
        raise UsageError(f"{left}: {error}") from None
    return Word(names, values, left.startswith("+"))


def read_values(text: str) -> Result:
    """Parse all values of a parameter, or its distribution; raise DefinitionError if that fails."""
    if not text.strip():
        raise DefinitionError("it has no value (an empty text is written \"''\")")
    reader = _Reader(text)
    found: list[Any] = []
    results = reader.results()
    for result in results:
        if isinstance(result, _Value):
            found.append(result.value)
        elif len(results) == 1:
            return result
        elif isinstance(result, Sequence):
            found.extend(result)
        else:
            raise DefinitionError("a distribution or a zip must be the only value")
    return found


def read_call(text: str) -> Result | None:
    """Parse a call of one of the functions; None for any other text."""
    match = _CALL.match(text)
    if match is None or not text.rstrip().endswith(")"):
        return None
    if match[1] not in USAGE:
        meant = meant_function(match[1])
        if meant is not None:
            raise DefinitionError(
                f"there is no function {match[1]}(…): did you mean {meant}? A text that looks like this"
                " is written {value: …}"
            )
        return None
    results = _Reader(text).results()
    return None if len(results) != 1 or isinstance(results[0], _Value) else results[0]


class _Value(NamedTuple):
    value: Any


class _Reader:
    """Recursive parser of elements separated by commas."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def results(self) -> list[_Value | Result]:
        found = [self._element("")]
        while self._take(","):
            found.append(self._element(""))
        if self._at < len(self._text):
            raise DefinitionError(f"cannot read '{self._text[self._at :]}' in '{self._text}'")
        return found

    def _blank(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _take(self, sign: str) -> bool:
        self._blank()
        if self._text.startswith(sign, self._at):
            self._at += len(sign)
            return True
        return False

    def _element(self, end: str) -> _Value | Result:
        self._blank()
        match self._text[self._at : self._at + 1]:
            case "'" | '"' as quote:
                return _Value(self._quoted(quote))
            case "[":
                return _Value(self._list())
            case "{":
                return _Value(self._mapping())
        function = _CALL.match(self._text, self._at)
        if function is not None and function[1] in USAGE:
            self._at = function.end()
            return self._call(function[1])
        return self._bare(end)

    def _value(self, end: str) -> Any:
        element = self._element(end)
        if isinstance(element, _Value):
            return element.value
        if isinstance(element, Sequence):
            return list(element)
        raise DefinitionError("a distribution or a zip must be the only value, not inside another")

    def _quoted(self, quote: str) -> str:
        found: list[str] = []
        at = self._at + 1
        while at < len(self._text):
            char = self._text[at]
            if char == quote:
                self._at = at + 1
                return "".join(found)
            if char == "\\" and self._text[at + 1 : at + 2] in ("\\", "'", '"'):
                at += 1
                char = self._text[at]
            found.append(char)
            at += 1
        raise DefinitionError(f"the quote {self._text[self._at :]} is not closed")

    def _list(self) -> list[Any]:
        self._at += 1
        if self._take("]"):
            return []
        items = [self._value("]")]
        while self._take(","):
            items.append(self._value("]"))
        self._close("]")
        return items

    def _mapping(self) -> dict[str, Any]:
        self._at += 1
        if self._take("}"):
            return {}
        pairs = dict([self._pair()])
        while self._take(","):
            pairs.update([self._pair()])
        self._close("}")
        return pairs

    def _pair(self) -> tuple[str, Any]:
        self._blank()
        if self._text[self._at : self._at + 1] in ("'", '"'):
            key = self._quoted(self._text[self._at])
        else:
            start = self._at
            self._at = _end_of(self._text, start, ":}")
            key = self._text[start : self._at].strip()
        if not self._take(":"):
            raise DefinitionError(f"a mapping is written {{key:value}}, not '{self._text}'")
        return key, self._value("}")

    def _call(self, name: str) -> Result:
        arguments: list[Any] = []
        named: dict[str, Any] = {}
        if not self._take(")"):
            while True:
                keyword = re.compile(r"\s*([a-z]+)\s*=").match(self._text, self._at)
                if keyword is not None:
                    self._at = keyword.end()
                    named[keyword[1]] = self._value(")")
                else:
                    arguments.append(self._value(")"))
                if not self._take(","):
                    break
            self._close(")")
        return call(name, arguments, named)

    def _close(self, sign: str) -> None:
        if not self._take(sign):
            raise DefinitionError(f"a '{sign}' is missing in '{self._text}'")

    def _bare(self, end: str) -> _Value:
        start = self._at
        self._at = _end_of(self._text, start, f",{end}")
        text = self._text[start : self._at].strip()
        if not text:
            raise DefinitionError(
                f"a value is missing in '{self._text}' (an empty text is written '')"
            )
        function = _CALL.match(text)
        meant = meant_function(function[1]) if function and text.endswith(")") else None
        if function is not None and meant is not None:
            raise DefinitionError(
                f"there is no function {function[1]}(…): did you mean {meant}? For a text use quotes"
            )
        return _Value(read_scalar(text))


def _end_of(text: str, start: int, ends: str) -> int:
    """Return where a bare word ends: at one of these signs, outside its own brackets."""
    open_signs: list[str] = []
    for at in range(start, len(text)):
        char = text[at]
        if not open_signs and char in ends:
            return at
        if char in _CLOSING:
            open_signs.append(_CLOSING[char])
        elif open_signs and char == open_signs[-1]:
            open_signs.pop()
    return len(text)
