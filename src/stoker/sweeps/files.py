"""Reading of sweep files in YAML 1.2 or TOML, with the line of every entry."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any

from stoker.errors import UsageError
from stoker.sweeps.scalars import read_scalar
from stoker.sweeps.tree import Map, Seq

if TYPE_CHECKING:
    from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

# Limits expansion by aliases; without aliases a text has no more nodes than characters.
_MAX_NODES = 100_000
_MAX_DEPTH = 50
_MAX_BYTES = 4 << 20
# Parsers of YAML and TOML take time quadratic in the depth, so deep nesting is refused before.
_MAX_BRACKETS = 200
_BRACKET = re.compile(r"[][{}]")
_WORD = r"""[\w"'-]+"""
_DOTTED = re.compile(rf"""(?<![\w"'-]){_WORD}(?:[ \t]*\.[ \t]*{_WORD}){{{_MAX_BRACKETS}}}""")
# A key of TOML: a bare or quoted word before a dot, a bracket or the equals sign.
_KEY = re.compile(r"""(?<![\w-])([\w-]+)\s*[].=]|"([^"\n]*)"\s*[].=]|'([^'\n]*)'\s*[].=]""")
_TAG = "tag:yaml.org,2002:"


def is_sweep_file(word: str) -> bool:
    """Whether a word in place of a command is the name of a sweep file, whether the file exists or not."""
    return word.endswith((".yaml", ".yml", ".toml")) and not any(sign in word for sign in " {=")


def read_file(path: str) -> Map:
    """Read the sweep of a file: TOML by its suffix, else YAML. `-` is standard input."""
    try:
        if path == "-":
            with open(0, "rb", closefd=False) as file:
                data = file.read()
        else:
            with open(path, "rb") as file:
                data = file.read()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    name = os.path.basename(path) if path != "-" else "standard input"
    if len(data) > _MAX_BYTES:
        raise UsageError(
            f"{name} is larger than {_MAX_BYTES >> 20} MiB: a sweep file contains parameters; keep data in"
            " files that runs read"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{name}:{line}: not UTF-8") from None
    return read_toml(text, name) if path.endswith(".toml") else read_yaml(text, name)


def read_yaml(text: str, file: str) -> Map:
    """Parse a sweep in YAML 1.2."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    _check_depth(text, file)
    try:
        node = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{file}:{mark.line + 1}" if mark is not None else file
        raise UsageError(f"{place}: {error.problem or error.context}") from None
    except (YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{file}: not readable as YAML: {_first_line(error)}") from None
    if node is None:
        raise UsageError(f"{file} is empty: a sweep needs a command and parameters")
    tree = _Reader(file, max(_MAX_NODES, len(text))).read(node, 0)
    if not isinstance(tree, Map):
        raise UsageError(f"{file}: a sweep must be a mapping: command: …, parameters: …")
    return tree


class _Reader:
    """Converts YAML nodes to a tree."""

    def __init__(self, file: str, most: int) -> None:
        self._file = file
        self._left = most

    def read(self, node: Node, depth: int) -> Any:
        from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            raise UsageError(f"{self._place(node)}: too large, or nested too deeply")
        if isinstance(node, ScalarNode):
            return self._scalar(node)
        if isinstance(node, MappingNode):
            return self._mapping(node, depth)
        assert isinstance(node, SequenceNode)
        return self._sequence(node, depth)

    def _place(self, node: Node) -> str:
        return f"{self._file}:{node.start_mark.line + 1}"

    def _scalar(self, node: ScalarNode) -> Any:
        tag, text = str(node.tag or ""), _join_surrogates(str(node.value))
        explicit = node.ctag.handle is not None
        if explicit and tag not in (f"{_TAG}{kind}" for kind in ("str", "int", "float", "bool")):
            raise UsageError(f"{self._place(node)}: the tag {tag} is not supported")
        if node.style is not None or (explicit and tag == f"{_TAG}str"):
            return text
        return read_scalar(text)

    def _sequence(self, node: SequenceNode, depth: int) -> Seq:
        sequence = Seq(self._file)
        for item in node.value:
            sequence.put(self.read(item, depth + 1), item.start_mark.line + 1)
        return sequence

    def _mapping(self, node: MappingNode, depth: int) -> Map:
        mapping, merged = Map(self._file), Map(self._file)
        for key_node, value_node in node.value:
            if not isinstance(key_node.value, str):
                raise UsageError(f"{self._place(key_node)}: a key is a word, not a list or mapping")
            key = _join_surrogates(key_node.value)
            value = self.read(value_node, depth + 1)
            if key == "<<" and key_node.style is None:
                for source in [value] if isinstance(value, Map) else list(reversed(value or ())):
                    if not isinstance(source, Map):
                        raise UsageError(f"{self._place(key_node)}: << takes mappings")
                    merged.update(source)
                    merged.lines.update(source.lines)
            elif key in mapping:
                raise UsageError(f"{self._place(key_node)}: '{key}' is here a second time")
            else:
                mapping.put(key, value, key_node.start_mark.line + 1)
        for key, value in merged.items():
            if key not in mapping:
                mapping.put(key, value, merged.lines.get(key))
        return mapping


def read_toml(text: str, file: str) -> Map:
    """Parse a sweep in TOML."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    _check_depth(text, file)
    if (deep := _DOTTED.search(text)) is not None:
        line = text.count("\n", 0, deep.start()) + 1
        raise UsageError(f"{file}:{line}: nested too deeply")
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+)", str(error))
        place = f"{file}:{found[1]}" if found else file
        raise UsageError(f"{place}: {re.sub(r' *[(]at line.*', '', str(error))}") from None
    except RecursionError:
        raise UsageError(f"{file}: nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"{file}: not readable as TOML: {_first_line(error)}") from None
    return _locate(plain, _find_lines(text), file)  # type: ignore[no-any-return]


def _check_depth(text: str, file: str) -> None:
    """Raise UsageError for a text whose brackets are nested too deeply."""
    depth = 0
    for found in _BRACKET.finditer(text):
        depth = depth + 1 if found[0] in "[{" else max(0, depth - 1)
        if depth > _MAX_BRACKETS:
            line = text.count("\n", 0, found.start()) + 1
            raise UsageError(f"{file}:{line}: nested too deeply")


def _locate(value: Any, lines: dict[str, int], file: str) -> Any:
    """Convert TOML values to a tree with the line of each key in `lines`."""
    if isinstance(value, dict):
        mapping = Map(file)
        for key, entry in value.items():
            mapping.put(key, _locate(entry, lines, file), lines.get(key))
        return mapping
    if isinstance(value, list):
        sequence = Seq(file)
        for item in value:
            sequence.put(_locate(item, lines, file))
        return sequence
    return value if isinstance(value, (str, int, float, bool)) else str(value)


def _find_lines(text: str) -> dict[str, int]:
    """Return the first line of each key: TOML's parser does not report lines."""
    lines: dict[str, int] = {}
    line = 1
    seen = 0
    for found in _KEY.finditer(text):
        line += text.count("\n", seen, found.start())
        seen = found.start()
        key = next(name for name in found.groups() if name is not None)
        lines.setdefault(key, line)
    return lines


def _join_surrogates(text: str) -> str:
    """Join surrogate pairs: JSON writes some characters as two escapes, which YAML parsers keep as two."""
    if not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
