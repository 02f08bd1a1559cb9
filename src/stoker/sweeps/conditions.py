"""Conditions of `when:` and `exclude:`: comparisons in Python's syntax, parsed but never executed.

    opt.name == 'sgd' and (lr > 0.05 or depth in [18, 34])

A comparison with a parameter that a run does not have is false.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from stoker.errors import UsageError
from stoker.sweeps.cell import Cell
from stoker.sweeps.tree import DefinitionError

Point = Mapping[str, Cell]
_Term = Callable[[Point], Any]

_MAX_LENGTH = 10_000
_ABSENT = object()
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_ORDERS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
# Words of SQL and C, which are read as Python only outside of quotes.
_FOREIGN = re.compile(r"'[^']*'|\"[^\"]*\"|<>|&&|\|\||(?<![=!<>])=(?!=)|\b(?:AND|OR|NOT|IN)\b")
_PYTHON = {"=": "==", "<>": "!=", "&&": " and ", "||": " or "}


class Condition:
    """A condition over parameters; raises DefinitionError if it cannot be parsed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: set[str] = set()
        if not text.strip():
            raise DefinitionError("the condition is empty: write one like opt.name == 'sgd'")
        if len(text) > _MAX_LENGTH:
            raise DefinitionError(f"the condition is longer than {_MAX_LENGTH:,} characters")
        try:
            tree = ast.parse(text.strip(), mode="eval")
            self._holds = self._truth(tree.body)
        except SyntaxError as error:
            meant = _in_python(text)
            hint = error.msg if meant is None else f"did you mean {meant} ?"
            raise DefinitionError(f"cannot read the condition '{text}': {hint}") from None
        except (RecursionError, MemoryError):
            raise DefinitionError("the condition is nested too deeply") from None

    def __repr__(self) -> str:
        return f"Condition({self.text!r})"

    def holds(self, point: Point) -> bool:
        """Whether the condition is true for these parameters."""
        return bool(self._holds(point))

    def _truth(self, node: ast.expr) -> _Term:
        match node:
            case ast.BoolOp(op=ast.And(), values=values):
                terms = [self._truth(value) for value in values]
                return lambda point: all(term(point) for term in terms)
            case ast.BoolOp(values=values):
                terms = [self._truth(value) for value in values]
                return lambda point: any(term(point) for term in terms)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                term = self._truth(operand)
                return lambda point: not term(point)
            case ast.Compare():
                return self._comparison(node)
        value = self._value(node)
        return lambda point: (found := value(point)) is not _ABSENT and bool(found)

    def _comparison(self, node: ast.Compare) -> _Term:
        values = [self._value(each) for each in (node.left, *node.comparators)]
        steps = [self._step(op) for op in node.ops]

        def compare(point: Point) -> bool:
            left = values[0](point)
            for step, value in zip(steps, values[1:], strict=True):
                right = value(point)
                if left is _ABSENT or right is _ABSENT or not step(left, right):
                    return False
                left = right
            return True

        return compare

    def _step(self, op: ast.cmpop) -> Callable[[Any, Any], bool]:
        match op:
            case ast.Eq() | ast.Is():
                return _is_equal
            case ast.NotEq() | ast.IsNot():
                return lambda left, right: not _is_equal(left, right)
            case ast.In():
                return self._contains
            case ast.NotIn():
                return lambda left, right: not self._contains(left, right)
        sign, order = _ORDERS[type(op)]

        def compare(left: Any, right: Any) -> bool:
            try:
                return order(left, right)
            except TypeError:
                raise UsageError(
                    f"the condition '{self.text}' compares {left!r} {sign} {right!r}, which have"
                    " no order"
                ) from None

        return compare

    def _contains(self, item: Any, group: Any) -> bool:
        if isinstance(group, str) and isinstance(item, str):
            return item in group
        if isinstance(group, (list, dict)):
            return any(_is_equal(item, each) for each in group)
        raise UsageError(f"the condition '{self.text}' looks in {group!r}, which is not a list")

    def _value(self, node: ast.expr) -> _Term:
        match node:
            case ast.Constant(value=str() | int() | float() | None as value):
                return lambda _point: value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return lambda _point: -number
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                terms = [self._value(item) for item in items]
                return lambda point: [term(point) for term in terms]
            case ast.Name() | ast.Attribute():
                return self._parameter(node)
        raise DefinitionError(
            f"'{ast.unparse(node)}' in the condition '{self.text}': only parameters, values,"
            " comparisons, in, and, or, not are allowed"
        )

    def _parameter(self, node: ast.Name | ast.Attribute) -> _Term:
        name = ast.unparse(node)
        if not all(part.isidentifier() for part in name.split(".")):
            raise DefinitionError(f"'{name}' in the condition '{self.text}' is not a parameter")
        if name.lower() in _WORDS:
            constant = _WORDS[name.lower()]
            return lambda _point: constant
        self.names.add(name)

        def look_up(point: Point) -> Any:
            cell = point.get(name)
            return _ABSENT if cell is None else cell.value

        return look_up


def _in_python(text: str) -> str | None:
    """Return a condition of SQL or C as Python: `=`, `<>`, `&&`, `AND`; None if it is still unreadable."""

    def translate(found: re.Match[str]) -> str:
        word = found[0]
        return word if word[0] in "'\"" else _PYTHON.get(word, word.lower())

    meant = " ".join(_FOREIGN.sub(translate, text).split())
    try:
        ast.parse(meant, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return meant


class Match:
    """An `exclude:` in mapping form: true if each parameter has one of its values."""

    def __init__(self, wanted: Mapping[str, list[Any]]) -> None:
        self.names = set(wanted)
        self._wanted = wanted
        self.text = ", ".join(f"{name}: {values}" for name, values in wanted.items())

    def holds(self, point: Point) -> bool:
        """Whether all parameters match."""
        return all(
            name in point and any(_is_equal(point[name].value, value) for value in values)
            for name, values in self._wanted.items()
        )


def _is_equal(left: Any, right: Any) -> bool:
    """Compare like YAML: 1 equals 1.0, but neither equals `true`."""
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    return bool(left == right)
