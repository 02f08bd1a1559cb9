"""No name that only type checkers import is used while the program runs."""

from __future__ import annotations

import ast
import builtins
import dis
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

SOURCE = Path(__file__).parents[2] / "src"
MODULE_NAMES = {
    "__annotations__",
    "__conditional_annotations__",
    "__doc__",
    "__file__",
    "__getattr__",
    "__name__",
    "__package__",
    "__path__",
    "__spec__",
}


class _RuntimeOnly(ast.NodeTransformer):
    """Removes the blocks that only type checkers read."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            return [self.visit(each) for each in node.orelse]
        return self.generic_visit(node)


def _code_objects(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_objects(constant)


def undefined_names(text: str) -> set[str]:
    """Global names that a module reads at run time and that neither it nor Python defines."""
    tree = ast.fix_missing_locations(_RuntimeOnly().visit(ast.parse(text)))
    module = compile(tree, "module", "exec", dont_inherit=True)
    defined = set(dir(builtins)) | MODULE_NAMES
    read: set[str] = set()
    for code in _code_objects(module):
        own = defined if code is module else set(code.co_varnames)
        for step in dis.get_instructions(code):
            if step.opname == "STORE_NAME":
                own.add(step.argval)
            elif step.opname == "STORE_GLOBAL":
                defined.add(step.argval)
            elif step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval not in own:
                read.add(step.argval)
    return read - defined


def test_every_name_that_runs_is_defined_at_run_time() -> None:
    paths = sorted(SOURCE.rglob("*.py"))
    found = {str(path): undefined_names(path.read_text()) for path in paths}

    assert {path: names for path, names in found.items() if names} == {}


def test_a_name_for_type_checkers_alone_is_noticed() -> None:
    text = (
        "from __future__ import annotations\n"
        "TYPE_CHECKING = False\n"
        "if TYPE_CHECKING:\n"
        "    from typing import Any, cast\n"
        "def read(value: Any) -> Any:\n"
        "    return cast('int', value)\n"
    )

    assert undefined_names(text) == {"cast"}
