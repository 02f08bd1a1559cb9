"""Conversion of W&B's command notation: `program:` and a list of words with `${macros}`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from stoker.sweeps.tree import DefinitionError

DEFAULT = ("${env}", "${interpreter}", "${program}", "${args}")

_PIECE = re.compile(r"\$\{(?P<macro>[^{}]*)\}|(?P<field>\{\{|\}\}|\{[^{}]*\})")
_MACROS = {
    "env": "/usr/bin/env",
    "interpreter": "python",
    "args": "{args}",
    "args_no_hyphens": "{args_no_hyphens}",
    "args_no_boolean_flags": "{args_no_boolean_flags}",
    "args_json": "{args_json}",
    "args_json_file": "{args_json_file}",
}


def to_template(words: Sequence[str], program: str | None) -> str:
    """Convert words to a template; raise DefinitionError for an unknown macro."""
    return " ".join(_word(word, program) for word in words)


def _word(word: str, program: str | None) -> str:
    found: list[str] = []
    at = 0
    for match in _PIECE.finditer(word):
        found.append(_literal(word[at : match.start()]))
        at = match.end()
        found.append(match["field"] or _macro(match["macro"], program))
    found.append(_literal(word[at:]))
    return "".join(found) or "''"


def _literal(text: str) -> str:
    return shlex.quote(text).replace("{", "{{").replace("}", "}}") if text else ""


def _macro(name: str, program: str | None) -> str:
    if name == "program":
        if program is None:
            raise DefinitionError("${program} is in the command: add program: SCRIPT")
        return _literal(program)
    if name.startswith("envvar:"):
        variable = name.removeprefix("envvar:")
        if not variable.isidentifier():
            raise DefinitionError(f"${{{name}}}: '{variable}' is not a variable name")
        return f'"${{{variable}}}"'
    if name not in _MACROS:
        known = ", ".join(f"${{{each}}}" for each in ("program", *_MACROS, "envvar:NAME"))
        raise DefinitionError(f"there is no ${{{name}}}, only {known}")
    return _MACROS[name]
