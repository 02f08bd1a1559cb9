"""Imports that a script makes first, read from its source without running it.

With these, also the first run of a script is forked from a worker. Standard library only, as the worker.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import os
import sys

from .learning import is_installed
from .program_scan import find_used_parts, is_for_type_checkers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_BYTES = 1 << 20


class StaticImports:
    """The installed modules that a script imports before it does anything else.

    `names` are the modules. `parts` are names that the script takes from them: a package that loads its parts
    late (such as transformers) loads them when they are named.
    """

    def __init__(self, names: list[str], parts: list[tuple[str, str]]) -> None:
        self.names = names
        self.parts = parts


def load_part(module: str, part: str) -> None:
    """Name a part of a package, so that the package loads it now; the part may be missing, or fail."""
    loaded = sys.modules.get(module)
    if loaded is not None and part not in vars(loaded) and hasattr(loaded, "__path__"):
        with contextlib.suppress(BaseException):
            getattr(loaded, part)


def find_static_imports(script: str) -> StaticImports:
    """Return what a script imports first; nothing if it cannot be read."""
    try:
        with open(script, "rb") as file:
            source = file.read(_MAX_BYTES + 1)
        tree = ast.parse(source) if len(source) <= _MAX_BYTES else ast.Module([], [])
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return StaticImports([], [])
    folder = os.path.dirname(script)
    names: dict[str, None] = {}
    aliases: dict[str, str] = {}
    parts: dict[tuple[str, str], None] = {}
    for statement in _first_imports(tree.body):
        if not all(is_package(module, folder) for module in _modules_of(statement)):
            break  # the user's own module may change what a later import does
        if isinstance(statement, ast.ImportFrom):
            module = str(statement.module)
            names[module] = None
            parts.update({(module, each.name): None for each in statement.names})
            continue
        for each in statement.names:
            names[each.name] = None
            bound = each.name if each.asname else each.name.partition(".")[0]
            aliases[each.asname or bound] = bound
    parts.update(dict.fromkeys(find_used_parts(tree, aliases)))
    return StaticImports(list(names), [(module, part) for module, part in parts if part != "*"])


def _modules_of(statement: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules that a statement imports; a relative one has no name."""
    if isinstance(statement, ast.ImportFrom):
        return [(not statement.level and statement.module) or ""]
    return [each.name for each in statement.names]


def _first_imports(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Return the imports before the first statement that may change what a later import does."""
    for statement in body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield statement
        elif isinstance(statement, ast.Try):
            yield from (each for each in statement.body if isinstance(each, ast.Import))
            if not all(isinstance(each, (ast.Import, ast.ImportFrom)) for each in statement.body):
                return
        elif not _is_harmless(statement):
            return


def _is_harmless(statement: ast.stmt) -> bool:
    """Whether a statement only defines something: it calls nothing and changes no object."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return not statement.decorator_list
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.If):
        return is_for_type_checkers(statement.test)
    if isinstance(statement, ast.Assign):
        is_named = all(isinstance(target, ast.Name) for target in statement.targets)
        return is_named and _is_plain(statement.value)
    return False


def _is_plain(value: ast.expr) -> bool:
    return not any(isinstance(node, (ast.Call, ast.Await, ast.Yield)) for node in ast.walk(value))


def is_package(name: str, folder: str) -> bool:
    """Whether a module is installed. A module in the script's folder is the user's own."""
    top = name.partition(".")[0]
    if not top or os.path.exists(f"{folder}/{top}.py") or os.path.isdir(f"{folder}/{top}"):
        return False
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return False
    origin = None if spec is None else spec.origin
    return isinstance(origin, str) and (origin in ("built-in", "frozen") or is_installed(origin))
