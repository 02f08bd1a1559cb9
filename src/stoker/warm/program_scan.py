"""Scan of a program's own source files: which libraries it imports anywhere, and what it changes before.

A worker may import a library before the program does only if the program does nothing that such an import
depends on. Standard library only, as the worker.
"""

from __future__ import annotations

import ast
import os
import sys

from .learning import is_installed
from .messages import stamp_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .messages import FileStamp

_MAX_FILES = 200
_MAX_BYTES = 4 << 20
_ENVIRON_READS = frozenset(("get", "items", "keys", "values", "copy"))
_ENVIRON_WRITES = frozenset(("setdefault", "pop", "__setitem__", "__delitem__"))
# Functions and attributes that change what a later import finds or does, in ways that no scan follows.
_HAZARDS = frozenset(
    (
        "__import__",
        "addsitedir",
        "environb",
        "exec",
        "load_dotenv",
        "meta_path",
        "path_hooks",
        "path_importer_cache",
        "reload",
        "sched_setaffinity",
        "setdlopenflags",
        "setenv",
        "setlocale",
        "setrlimit",
    )
)
# Python 3.9 has neither: every import then counts as unknown.
_STANDARD_LIBRARY: frozenset[str] = getattr(sys, "stdlib_module_names", frozenset())
_CONDITIONAL = (ast.ExceptHandler, getattr(ast, "match_case", ast.ExceptHandler))
_PATH_FUNCTIONS: dict[str, Callable[..., str]] = {
    "abspath": os.path.abspath,
    "dirname": os.path.dirname,
    "join": os.path.join,
    "realpath": os.path.realpath,
    "str": str,
    "getcwd": os.getcwd,
}


class UnsafeProgramError(Exception):
    """The program may change what an import does, in a way that the scan cannot follow."""


class ProgramScan:
    """The source files of a program, from its script on, in the order in which they import each other.

    `wanted` are the libraries to look for. `known` are those, and further packages that change nothing for
    them. `imports` are the wanted modules that the program imports, unless a condition decides about it;
    `parts` are the names that it takes from them. `variables` are those that the program sets, anywhere.
    `files` are the scanned files, with their stamps from before they were read.
    Raises UnsafeProgramError where it cannot follow.
    """

    def __init__(self, wanted: frozenset[str], known: frozenset[str]) -> None:
        self.imports: dict[str, None] = {}
        self.parts: dict[tuple[str, str], None] = {}
        self.variables: set[str] = set()
        self.files: dict[str, FileStamp | None] = {}
        self._wanted = wanted
        self._known = known
        self._folders: list[str] = []  # where modules are searched before the installed ones
        self._left_bytes = _MAX_BYTES

    def scan(self, script: str) -> None:
        """Scan a script and the modules of its own that it imports."""
        given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        own = [path for path in given if path and not is_installed(f"{path}/")]
        self._folders = [os.path.dirname(script), *own]
        self._scan_file(script)
        for module in self.imports:
            if self._find_own(module.split(".")[:1]):
                raise UnsafeProgramError(f"{module} is the program's own")

    def _scan_file(self, path: str) -> None:
        if path in self.files:
            return
        self.files[path] = stamp_file(path)
        with open(path, "rb") as file:
            source = file.read(self._left_bytes + 1)
        self._left_bytes -= len(source)
        if self._left_bytes < 0 or len(self.files) > _MAX_FILES:
            raise UnsafeProgramError("it is too large")
        tree = ast.parse(source)
        scan = _FileScan(self, path)
        for statement in tree.body:
            scan.visit(statement, True)
        self.parts.update(dict.fromkeys(find_used_parts(tree, scan.aliases)))

    def on_import(self, name: str, parts: list[str], is_sure: bool) -> bool:
        """Handle an import of a module; `is_sure` unless a condition decides about it.

        Returns whether the module is a wanted one that is imported in any case.
        """
        top, words = name.partition(".")[0], name.split(".")
        own = [
            *self._find_own(words),
            *(p for part in parts for p in self._find_own([*words, part])),
        ]
        if own:
            for count in range(1, len(words)):
                own = [*self._find_own(words[:count]), *own]
            self.scan_files(own)
        elif top in self._wanted:
            if is_sure:
                self.imports[name] = None
                self.parts.update({(name, part): None for part in parts})
            return is_sure
        elif top not in self._known and top not in _STANDARD_LIBRARY:
            raise UnsafeProgramError(f"it imports {top}")
        return False

    def scan_files(self, paths: list[str]) -> None:
        """Scan files of the program that were not scanned before."""
        for path in paths:
            self._scan_file(path)

    def _find_own(self, words: list[str]) -> list[str]:
        return [path for folder in self._folders for path in own_files(folder, words)]

    def on_folder(self, path: str | None) -> None:
        """Handle a folder that the program adds to `sys.path`; None if its name is not known."""
        if path is None:
            raise UnsafeProgramError("it changes sys.path")
        self._folders.append(os.path.abspath(path))

    def on_variable(self, name: ast.expr | None) -> None:
        """Handle a variable of the environment that the program sets or removes."""
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            raise UnsafeProgramError("it changes the environment")
        self.variables.add(name.value)


class _FileScan:
    """Visits all statements and expressions of one file."""

    def __init__(self, program: ProgramScan, path: str) -> None:
        self.aliases: dict[str, str] = {}  # names of wanted modules in this file
        self._program = program
        self._path = path

    def visit(self, node: ast.AST, is_sure: bool) -> None:
        """Visit a node and what is below it; `is_sure` unless a condition decides whether it is executed."""
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._on_import(node, is_sure)
        elif isinstance(node, ast.If):
            self._on_if(node, is_sure)
        elif isinstance(node, ast.Call):
            self._on_call(node)
        elif isinstance(node, ast.Subscript):
            self._on_subscript(node)
        elif isinstance(node, (ast.Attribute, ast.Name)):
            self._on_name(node)
        elif isinstance(node, ast.Compare):  # "X" in os.environ, name in sys.modules
            self._visit_all([each for each in _below(node) if not _is_state(each)], is_sure)
        elif isinstance(node, ast.Dict):  # {**os.environ}
            self._visit_all([each for each in _below(node) if not _is_environ(each)], is_sure)
        else:
            is_sure = is_sure and not isinstance(node, _CONDITIONAL)
            self._visit_all(_below(node), is_sure)

    def _visit_all(self, nodes: list[ast.AST], is_sure: bool = False) -> None:
        for node in nodes:
            self.visit(node, is_sure)

    def _on_import(self, node: ast.Import | ast.ImportFrom, is_sure: bool) -> None:
        if isinstance(node, ast.Import):
            for each in node.names:
                if self._program.on_import(each.name, [], is_sure):
                    bound = each.name if each.asname else each.name.partition(".")[0]
                    self.aliases[each.asname or bound] = bound
            return
        parts = [each.name for each in node.names if each.name != "*"]
        if (node.module == "os" and {"environ", "putenv", "unsetenv"} & set(parts)) or (
            node.module == "sys" and {"path", "modules"} & set(parts)
        ):
            raise UnsafeProgramError(f"it takes {', '.join(parts)} from {node.module}")
        words = node.module.split(".") if node.module else []
        if node.level:
            folder = self._path
            for _ in range(node.level):
                folder = os.path.dirname(folder)
            near = [words, *([*words, part] for part in parts)]
            self._program.scan_files([path for each in near for path in own_files(folder, each)])
        else:
            self._program.on_import(".".join(words), parts, is_sure)

    def _on_if(self, node: ast.If, is_sure: bool) -> None:
        if is_for_type_checkers(node.test):
            self._visit_all(list(node.orelse), is_sure)
            return
        self.visit(node.test, is_sure)
        self._visit_all(list(node.body), is_sure and _is_main_guard(node.test))
        self._visit_all(list(node.orelse))

    def _on_call(self, node: ast.Call) -> None:
        """Handle a call: of a method of `os.environ` or `sys.path`, of another function, or with them."""
        function = node.func
        first = node.args[0] if node.args else None
        name = getattr(function, "attr", getattr(function, "id", ""))
        holder = getattr(function, "value", None)
        if _is_environ(holder):
            self._on_environ_call(name, node)
        elif _is_sys(holder, "path"):
            self._on_path_call(name, node)
        elif _is_sys(holder, "modules") and name not in ("get", "keys", "items", "values", "copy"):
            raise UnsafeProgramError("it changes sys.modules")
        elif name in ("putenv", "unsetenv"):
            self._program.on_variable(first)
        elif name == "import_module":
            if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
                raise UnsafeProgramError("it computes the name of a module")
            self._program.on_import(first.value, [], False)
        else:
            self.visit(function, False)
        is_copy = name == "dict"
        arguments = [each for each in node.args if not (is_copy and _is_environ(each))]
        given = [each.value for each in node.keywords if each.arg != "env"]
        self._visit_all([*arguments, *given])

    def _on_environ_call(self, method: str, node: ast.Call) -> None:
        if method in _ENVIRON_WRITES:
            self._program.on_variable(node.args[0] if node.args else None)
        elif method == "update":
            for each in node.keywords:
                self._program.on_variable(ast.Constant(each.arg))
            for given in node.args:
                for name in given.keys if isinstance(given, ast.Dict) else [None]:
                    self._program.on_variable(name)
        elif method not in _ENVIRON_READS:
            raise UnsafeProgramError("it changes the environment")

    def _on_path_call(self, method: str, node: ast.Call) -> None:
        if method in ("append", "insert") and node.args:
            self._program.on_folder(_path_of(node.args[-1], self._path))
        else:
            raise UnsafeProgramError("it changes sys.path")

    def _on_subscript(self, node: ast.Subscript) -> None:
        is_read = isinstance(node.ctx, ast.Load)
        if _is_environ(node.value):
            if not is_read:
                self._program.on_variable(node.slice)
        elif _is_state(node.value):
            if not is_read:
                raise UnsafeProgramError("it changes sys")
        else:
            self.visit(node.value, False)
        self.visit(node.slice, False)

    def _on_name(self, node: ast.Attribute | ast.Name) -> None:
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        if name in _HAZARDS or _is_state(node):
            raise UnsafeProgramError(f"it uses {name}")
        if isinstance(node, ast.Attribute):
            self.visit(node.value, False)


def is_for_type_checkers(test: ast.expr) -> bool:
    """Whether a condition holds for type checkers alone."""
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return name == "TYPE_CHECKING"


def _below(node: ast.AST) -> list[ast.AST]:
    return list(ast.iter_child_nodes(node))


def _is_main_guard(test: ast.expr) -> bool:
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = (test.left, test.comparators[0])
    return any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)


def _is_environ(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "environ"


def _is_sys(node: ast.AST | None, name: str) -> bool:
    """Whether a node is `sys.path` or `sys.modules`."""
    if not isinstance(node, ast.Attribute) or node.attr != name:
        return False
    return isinstance(node.value, ast.Name) and node.value.id in ("sys", "_sys")


def _is_state(node: ast.AST) -> bool:
    return _is_environ(node) or _is_sys(node, "path") or _is_sys(node, "modules")


def own_files(folder: str, words: list[str]) -> list[str]:
    """Return the source files of a module in a folder."""
    path = os.path.join(folder, *words)
    return [each for each in (f"{path}.py", f"{path}/__init__.py") if os.path.isfile(each)]


def find_used_parts(tree: ast.Module, aliases: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Return the names that a file takes from imported modules anywhere: `transformers.GPT2Config`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = aliases.get(node.value.id)
            if module is not None:
                yield module, node.attr


def _path_of(node: ast.expr, file: str) -> str | None:
    """Return the path that an expression of constants, `__file__` and os.path names; None for others."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return file if node.id == "__file__" else None
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    function = node.func
    called = _PATH_FUNCTIONS.get(getattr(function, "attr", getattr(function, "id", "")))
    given = [_path_of(each, file) for each in node.args]
    if called is None or None in given:
        return None
    try:
        return called(*given)
    except (TypeError, OSError):
        return None
