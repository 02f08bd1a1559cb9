"""Source code of definitions in the user's own modules, with the definitions they refer to.

The code is read from the present files, because a fresh process will import those.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_LIBRARIES = tuple(
    os.path.join(os.path.realpath(path), "")
    for key, path in sysconfig.get_paths().items()
    if key in ("stdlib", "platstdlib", "purelib", "platlib")
)
_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "")


class _Origin(NamedTuple):
    """Where an imported name comes from: a module and a name in it; None for the module itself."""

    module: str
    name: str | None


class _Module:
    """A parsed module: statements and imports by the names that they bind."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        is_package = os.path.basename(path) == "__init__.py"
        self.package = name if is_package else name.rpartition(".")[0]
        self.statements: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, _Origin] = {}
        self.stars: list[str] = []
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
        for statement in _flatten(tree.body):
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                self._take_import(statement)
            else:
                for bound in _bound_names(statement):
                    self.statements.setdefault(bound, []).append(statement)

    def _take_import(self, statement: ast.Import | ast.ImportFrom) -> None:
        for bound, origin in find_origins(statement, self.package):
            if bound == "*":
                self.stars.append(origin.module)
            else:
                self.imports[bound] = origin


class Definitions:
    """Reads definitions of the user's own modules, each once, with everything they refer to."""

    def __init__(self) -> None:
        self._modules: dict[str, _Module | None] = {}
        self._read: set[tuple[str, str]] = set()

    def read(self, module: str, name: str) -> Iterator[str]:
        """Yield the source of a definition and of those it refers to; nothing if already read."""
        if (module, name) in self._read:
            return
        self._read.add((module, name))
        found = self._open(module)
        if found is None:
            return
        if name in found.imports:
            origin = found.imports[name]
            if origin.name is not None:
                yield from self.read(origin.module, origin.name)
            return
        if name not in found.statements:
            for star in found.stars:
                yield from self.read(star, name)
            return
        for statement in found.statements[name]:
            yield f"{module}.{name}"
            yield ast.unparse(_without_docstrings(statement))
            yield from self._read_named(found, statement)

    def read_all(self, module: str, names: Iterable[str]) -> Iterator[str]:
        """Yield the same for several names of a module."""
        for name in names:
            yield from self.read(module, name)

    def _read_named(self, module: _Module, statement: ast.stmt) -> Iterator[str]:
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        attributes = {node.attr for node in ast.walk(statement) if isinstance(node, ast.Attribute)}
        yield from self.read_all(module.name, sorted(names))
        origins = [module.imports[name] for name in sorted(names) if name in module.imports]
        for node in ast.walk(statement):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                origins += [origin for _bound, origin in find_origins(node, module.package)]
        for origin in origins:
            if origin.name is not None:
                yield from self.read(origin.module, origin.name)
                # The name can be a submodule.
                yield from self.read_all(f"{origin.module}.{origin.name}", sorted(attributes))
            else:
                yield from self.read_all(origin.module, sorted(attributes))

    def _open(self, name: str) -> _Module | None:
        if name not in self._modules:
            path = _file_of(name)
            try:
                own = path is not None and _is_own(path)
                self._modules[name] = _Module(name, path) if path is not None and own else None
            except (OSError, SyntaxError, ValueError):
                self._modules[name] = None
        return self._modules[name]


def is_own_module(name: str) -> bool:
    """Whether a module is the user's own: not in Python, an installed package or Stoker."""
    if name == "__main__":
        return True
    path = _file_of(name)
    return path is not None and _is_own(path)


def find_origins(
    statement: ast.Import | ast.ImportFrom, package: str
) -> Iterator[tuple[str, _Origin]]:
    """Yield the names that an import binds, each with its origin."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            yield alias.asname or alias.name.partition(".")[0], _Origin(alias.name, None)
        return
    source = "." * statement.level + (statement.module or "")
    try:
        module = importlib.util.resolve_name(source, package or None)
    except ImportError:
        return
    for alias in statement.names:
        yield alias.asname or alias.name, _Origin(module, alias.name)


def _file_of(name: str) -> str | None:
    if name in sys.modules:
        path = getattr(sys.modules[name], "__file__", None)
    else:
        parent = name.rpartition(".")[0]
        if parent and parent not in sys.modules:
            return None  # find_spec would import the package
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
        path = None if spec is None else spec.origin
    return path if isinstance(path, str) and path.endswith(".py") else None


def _is_own(path: str) -> bool:
    real = os.path.realpath(path)
    is_installed = "site-packages" in real or "dist-packages" in real
    return not (is_installed or real.startswith((*_LIBRARIES, _OURS)))


def _flatten(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, including those in its conditions and try blocks."""
    for statement in body:
        inner = [
            each
            for field in ("body", "orelse", "finalbody")
            for each in getattr(statement, field, [])
        ]
        inner += [each for handler in getattr(statement, "handlers", []) for each in handler.body]
        is_definition = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if inner and not is_definition:
            yield from _flatten(inner)
        else:
            yield statement


def _bound_names(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _without_docstrings(statement: ast.stmt) -> ast.stmt:
    for node in ast.walk(statement):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
    return statement
