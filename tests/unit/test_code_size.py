"""No module is longer than 450 lines, and no function longer than 50."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
MODULE_LINES = 450
FUNCTION_LINES = 50


def too_long(name: str, text: str) -> list[str]:
    """Return what is too long in a module."""
    lines = text.count("\n")
    found = [f"{name}: {lines} lines"] if lines > MODULE_LINES else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_LINES:
                found.append(f"{name}: {node.name} has {length} lines")
    return found


def test_modules_and_functions_stay_short() -> None:
    paths = sorted(SOURCE.rglob("*.py"))

    assert [each for path in paths for each in too_long(str(path), path.read_text())] == []


def test_a_long_module_and_a_long_function_are_noticed() -> None:
    text = "def one():\n" + "    pass\n" * 50 + "\n" * 400

    assert too_long("a.py", text) == ["a.py: 451 lines", "a.py: one has 51 lines"]
