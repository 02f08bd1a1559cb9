"""The page's modules as one file: a browser that has nothing yet asks once, and not forty times."""

from __future__ import annotations

import re
from collections.abc import Mapping

_IMPORT = re.compile(r"^import \{([^}]*)\} from '([^']+)';$", re.MULTILINE)
_LAZY_IMPORT = re.compile(r"(?<=\(\) => )import\('([^']+)'\)")
_EXPORT = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)
# A module is run when the first one wants it, and its exports are kept.
_HEAD = """\
const $kept = new Map();
function $need(path) {
  if (!$kept.has(path)) $kept.set(path, $modules[path]());
  return $kept.get(path);
}
const $modules = {
"""


def bundle(sources: Mapping[str, str], main: str) -> str:
    """A script that runs the module `main` as a browser would, with all that it imports, also later.

    Modules keep to what is read here: named imports on one line, by their whole path, `() => import(…)`
    for those wanted later, and exports of functions, constants and classes where they are declared.
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
    """A module as a method that returns what it exports."""
    names = [name for _kind, name in _EXPORT.findall(source)]
    text = _IMPORT.sub(_read_import, source)
    text = _LAZY_IMPORT.sub(r"Promise.resolve($need('\1'))", text)
    text = _EXPORT.sub(r"\1 \2", text)
    if other := _OTHER.search(text):
        raise ValueError(f"{path}: no bundle can hold {other[0]!r}")
    return f"'{path}'() {{\n{text}\nreturn {{{', '.join(names)}}};\n}},\n"


def _read_import(found: re.Match[str]) -> str:
    names = re.sub(r"(\w+) as (\w+)", r"\1: \2", found[1])
    return f"const {{{names}}} = $need('{found[2]}');"
