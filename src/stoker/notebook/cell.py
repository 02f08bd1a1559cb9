"""Runs the code of a cell in the process of its job."""

from __future__ import annotations

import ast
import linecache
import pickle
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import msgspec

from stoker.task.worker import FailedCallError

NAME = "<cell>"


class CellResult(msgspec.Struct, frozen=True):
    """What a cell leaves: the value of its last expression, or its text, and the variables asked for."""

    value: Any
    text: str | None
    variables: dict[str, Any]


class OutputError(Exception):
    """A variable that was asked for is not set, or cannot be sent to another process."""


def check_source(source: str) -> None:
    """Raise SyntaxError for a cell that is not plain Python."""
    compile(source, NAME, "exec")


def run_cell(source: str, variables: Mapping[str, Any], wanted: Sequence[str]) -> CellResult:
    """Run a cell, with variables of the notebook, and return the wanted variables.

    A value that cannot be sent to another process is returned as its text.
    """
    linecache.cache[NAME] = (len(source), None, source.splitlines(keepends=True), NAME)
    space: dict[str, Any] = {"__name__": "__main__", **variables}
    try:
        value = _execute(source, space)
    except Exception as error:
        raise FailedCallError(None) from error.with_traceback(_trace_of_cell(error))
    kept = {name: _take(space, name) for name in wanted}
    if _can_be_sent(value):
        return CellResult(value, None, kept)
    return CellResult(None, repr(value), kept)


def _execute(source: str, space: dict[str, Any]) -> Any:
    """Run the code; return the value of its last line if that is an expression."""
    tree = ast.parse(source, NAME)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NAME, "exec"), space)  # noqa: S102 - the user's own cell
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), NAME, "eval"), space)  # noqa: S307


def _trace_of_cell(error: Exception) -> TracebackType | None:
    """Return the traceback of an error from the cell's own line on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != NAME:
        trace = trace.tb_next
    return trace


def _take(space: Mapping[str, Any], name: str) -> Any:
    import cloudpickle

    if name not in space:
        raise OutputError(f"-o {name}: the cell has not set it")
    try:
        cloudpickle.dumps(space[name])
    except Exception as error:
        kind = type(space[name]).__name__
        raise OutputError(f"-o {name}: a {kind} cannot be sent back: {error}") from None
    return space[name]


def _can_be_sent(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True
