"""Bundles the page's JavaScript modules into one file, so that a browser sends one request, not forty."""

from __future__ import annotations

import re
from collections.abc import Mapping

_IMPORT = re.compile(r"^import \{([^}]*)\} from '([^']+)';$", re.MULTILINE)
_LAZY_IMPORT = re.compile(r"(?<=\(\) => )import\('([^']+)'\)")
_EXPORT = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?:/\*\*(?:[^*]|\*(?!/))*\*/[ \t]*|//[^\n]*)\n", re.MULTILINE)
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)
# A module runs when it is first imported; its exports are kept.
_HEAD = """\
const $kept = new Map();
function $need(path) {
  if (!$kept.has(path)) $kept.set(path, $modules[path]());
  return $kept.get(path);
}
const $modules = {
"""


def bundle(sources: Mapping[str, str], main: str) -> str:
    """Return a script that runs the module `main` and everything it imports, as a browser would.

    Modules may use only named imports on one line with absolute paths, lazy `() => import(…)`, and exports
    at the declaration of functions, constants and classes.
    """
    wanted, found = [main], {}
    while wanted:
        path = wanted.pop()
        if path not in found:
            found[path] = _wrap(path, sources[path])
            wanted += [name for _names, name in _IMPORT.findall(sources[path])]
            wanted += _LAZY_IMPORT.findall(sources[path])
    parts = [found[path] for path in sorted(found)]
    return f"{_HEAD}{''.join(parts)}}};\n$need('{main}');\n"


def _wrap(path: str, source: str) -> str:
    """Return a module as a method that returns its exports."""
    names = [name for _kind, name in _EXPORT.findall(source)]
    text = _INDENT.sub("", _COMMENT.sub("", source))  # a third of what a browser would load
    text = _IMPORT.sub(_read_import, text)
    text = _LAZY_IMPORT.sub(r"Promise.resolve($need('\1'))", text)
    text = _EXPORT.sub(r"\1 \2", text)
    if other := _OTHER.search(text):
        raise ValueError(f"{path}: a bundle cannot contain {other[0]!r}")
    return f"'{path}'() {{\n{text}\nreturn {{{', '.join(names)}}};\n}},\n"


def _read_import(found: re.Match[str]) -> str:
    names = re.sub(r"(\w+) as (\w+)", r"\1: \2", found[1])
    return f"const {{{names}}} = $need('{found[2]}');"
