"""Fingerprint of a function or class, which changes when the code that a call would run changes.

It covers the code, defaults and closures, and everything the code refers to by name in the user's own
modules: functions, classes and plain values. It does not cover installed packages, the standard library,
comments, line numbers and layout.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import os
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stoker.task.definitions import Definitions, is_own_module

LENGTH = 12

_ATOMS = (type(None), bool, int, float, complex, str, bytes, range)
# Attributes that Python adds to a class, and that do not change its behaviour.
_NOT_CODE = frozenset(
    [
        "__abstractmethods__",
        "__annotate__",
        "__annotate_func__",
        "__annotations__",
        "__annotations_cache__",
        "__dict__",
        "__doc__",
        "__firstlineno__",
        "__module__",
        "__qualname__",
        "__static_attributes__",
        "__weakref__",
        "_abc_impl",
    ]
)


def take_fingerprint(work: Callable[..., Any]) -> str:
    """Return the fingerprint of a callable; it is the same in every process.

    A callable that cannot be inspected gets a random fingerprint, which never equals another.
    """
    walk = _Walk()
    try:
        walk.add(work)
    except Exception:  # from a user's __repr__, or from too deep nesting
        return os.urandom(LENGTH // 2).hex()
    return walk.digest()


class _Walk:
    """Hashes an object and everything its code refers to, each once."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, Any] = {}  # keeps the objects alive, so that no id is reused
        self._definitions = Definitions()

    def digest(self) -> str:
        return self._hash.hexdigest()[:LENGTH]

    def add(self, value: Any) -> None:
        if isinstance(value, enum.Enum):
            self._put("enum", repr(value))
        elif isinstance(value, _ATOMS):
            self._put("value", repr(value))
        elif id(value) in self._seen:
            self._put("again")
        else:
            self._seen[id(value)] = value
            self._add_once(value)

    def _put(self, *words: str) -> None:
        for word in words:
            data = word.encode("utf-8", "surrogatepass")
            self._hash.update(len(data).to_bytes(8, "big") + data)

    def _add_once(self, value: Any) -> None:
        match value:
            case tuple() | list():
                self._add_all(type(value).__name__, value)
            case set() | frozenset():
                self._put("set", *sorted(map(repr, value)))
            case dict() | types.MappingProxyType():
                self._add_items("mapping", value)
            case functools.partial():
                self._add_all("partial", (value.func, value.args, value.keywords))
            case staticmethod() | classmethod() | types.MethodType():
                self._add_all("method", (value.__func__, getattr(value, "__self__", None)))
            case property():
                self._add_all("property", (value.fget, value.fset, value.fdel))
            case types.ModuleType():
                self._put("module", value.__name__)
            case types.CodeType():
                self._add_code(value, None)
            case types.FunctionType() | type():
                self._add_definition(value)
            case _:
                self._add_object(value)

    def _add_all(self, tag: str, values: Iterable[Any]) -> None:
        self._put(tag)
        for value in values:
            self.add(value)
        self._put("end")

    def _add_items(self, tag: str, items: Mapping[Any, Any]) -> None:
        self._put(tag)
        for key in sorted(items, key=repr):
            self._put(repr(key))
            self.add(items[key])
        self._put("end")

    def _add_object(self, value: Any) -> None:
        """Hash the class and attributes of an object of an own class; of others only the class name."""
        kind = type(value)
        self._put("object", kind.__module__, kind.__qualname__)
        self.add(kind)
        if is_own_module(kind.__module__) and hasattr(value, "__dict__"):
            self._add_items("attributes", vars(value))
        if isinstance(value, types.BuiltinFunctionType):
            self._put(value.__qualname__)
        elif hasattr(value, "dtype") and hasattr(value, "tobytes") and not value.dtype.hasobject:
            self._put(
                str(value.dtype), repr(value.shape), hashlib.sha256(value.tobytes()).hexdigest()
            )

    def _add_definition(self, value: types.FunctionType | type) -> None:
        """Hash a function or a class: from its file if the run imports it, otherwise from memory."""
        self._put("definition", value.__module__, value.__qualname__)
        if not is_own_module(value.__module__):
            return
        if _is_imported_by_name(value):
            name = value.__qualname__.partition(".")[0]
            self._put(*self._definitions.read(value.__module__, name))
        elif isinstance(value, type):
            self._add_all("bases", value.__bases__)
            own = {name: each for name, each in vars(value).items() if name not in _NOT_CODE}
            self._add_items("class", own)
        else:
            self._add_function(value)

    def _add_function(self, function: types.FunctionType) -> None:
        self._add_all("defaults", (function.__defaults__, function.__kwdefaults__))
        self._add_all("closure", map(_content, function.__closure__ or ()))
        self._add_code(function.__code__, function.__doc__)
        names = sorted(_names_in(function.__code__))
        for name in names:
            value = function.__globals__.get(name, self)
            if isinstance(value, types.ModuleType):
                self._put(*self._definitions.read_all(value.__name__, names))
            elif value is not self:
                self._put("global", name)
                self.add(value)
        for module in sorted(_imports_in(function.__code__)):
            self._put(*self._definitions.read_all(module, names))

    def _add_code(self, code: types.CodeType, docstring: str | None) -> None:
        self._put("code", code.co_code.hex(), *code.co_names, *code.co_varnames, *code.co_freevars)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._add_code(constant, None)
            elif constant != docstring or docstring is None:
                self.add(constant)


def _is_imported_by_name(value: types.FunctionType | type) -> bool:
    """Whether a pickle refers to it by module and name, so that another process imports it."""
    found: Any = sys.modules.get(value.__module__)
    if value.__module__ == "__main__" or getattr(found, "__file__", None) is None:
        return False
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # not yet bound


def _names_in(code: types.CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


def _imports_in(code: types.CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    own = {step.argval for step in dis.get_instructions(code) if step.opname == "IMPORT_NAME"}
    return own.union(*map(_imports_in, inner))
