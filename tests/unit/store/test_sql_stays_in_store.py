"""Only `stoker.store` contains SQL. Other packages call its functions, which are named by what they do."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker

PACKAGE = Path(stoker.__file__).parent
SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|REPLACE INTO|PRAGMA|CREATE (TEMP )?TABLE)\s")
CALLS = {"execute", "executemany", "executescript"}


def docstrings(tree: ast.AST) -> set[int]:
    """Return which constants are statements of their own: prose."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def find_sql(source: str) -> Iterator[int]:
    """Find the lines of a module with SQL in a string, or with a call that takes SQL."""
    tree = ast.parse(source)
    prose = docstrings(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in prose and SQL.search(text):
                yield node.lineno
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"))):
                continue  # a method of the class itself, which is no database outside of the store
            case ast.Call(func=ast.Attribute(attr=name)) if name in CALLS:
                yield node.lineno


@pytest.mark.parametrize(
    "source",
    [
        'rows = database.read("SELECT id FROM job")',
        'sql = f"SELECT {columns} FROM job"',
        'sql = "id = ?"\nsql = ("UPDATE job"\n " SET state = ?")',
        "database.execute(sql)",
    ],
)
def test_the_rule_sees_sql(source: str) -> None:
    assert list(find_sql(source))


@pytest.mark.parametrize(
    "source", ['"""Every UPDATE of the store is guarded."""', 'print("select a job from the list")']
)
def test_the_rule_lets_prose_pass(source: str) -> None:
    assert not list(find_sql(source))


def test_there_is_no_sql_outside_the_store() -> None:
    modules = [
        path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "store"
    ]
    # What the garbage collector finds may log a traceback. In Python 3.11 that calls ast.parse, which then
    # fails where it was interrupted.
    gc.disable()
    try:
        found = [
            f"{path.relative_to(PACKAGE)}:{line}"
            for path in modules
            for line in find_sql(path.read_text())
        ]
    finally:
        gc.enable()

    assert len(modules) > 100
    assert not found, "move the SQL into stoker/store"
