"""Parsing of query strings into typed values; unknown, repeated or malformed parameters are refused."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec
import msgspec.inspect

from stoker.api.problem import RefusedError

T = TypeVar("T", bound=msgspec.Struct)

_MAX_PARAMETERS = 1000
_NOTHING: Mapping[str, str] = {}
_NUMBERS = (msgspec.inspect.IntType, msgspec.inspect.FloatType, msgspec.inspect.BoolType)


class Parameter(NamedTuple):
    """How the words of one parameter are parsed."""

    is_list: bool
    is_text: bool


def read_query(text: bytes, kind: type[T], of_path: Mapping[str, str] = _NOTHING) -> T:
    """Parse the parameters of a request; a list takes its parameter repeatedly.

    `of_path` are parameters in the path.
    """
    try:
        return msgspec.convert({**(_collect(text, kind) if text else {}), **of_path}, kind)
    except (ValueError, msgspec.ValidationError) as error:
        raise RefusedError(400, f"in the query: {error}") from None


def _collect(text: bytes, kind: type[msgspec.Struct]) -> dict[str, Any]:
    parameters = parameters_of(kind)
    values: dict[str, Any] = {}
    pairs = parse_qsl(
        text.decode("ascii"),
        keep_blank_values=True,
        strict_parsing=True,
        errors="strict",
        max_num_fields=_MAX_PARAMETERS,
    )
    for name, word in pairs:
        if name not in parameters:
            known = ", ".join(parameters) or "none at all"
            raise ValueError(f"there is no parameter '{name}'; there are: {known}")
        value = word if parameters[name].is_text else _number(name, word)
        if parameters[name].is_list:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise ValueError(f"'{name}' is given twice")
        else:
            values[name] = value
    return values


@functools.cache
def parameters_of(kind: type[msgspec.Struct]) -> dict[str, Parameter]:
    """Return the parameters of a query type, by name."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return {field.encode_name: _parameter(field.type) for field in info.fields}


def _parameter(kind: msgspec.inspect.Type) -> Parameter:
    if isinstance(kind, msgspec.inspect.ListType):
        return Parameter(is_list=True, is_text=_parameter(kind.item_type).is_text)
    members = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
    return Parameter(
        is_list=False, is_text=not any(isinstance(member, _NUMBERS) for member in members)
    )


def _number(name: str, word: str) -> int | float | bool:
    """Parse a number, `true` or `false` in JSON notation."""
    try:
        return msgspec.json.decode(word, type=int | float | bool)
    except msgspec.DecodeError:
        raise ValueError(f"'{name}' must be a number, true or false, not '{word}'") from None
