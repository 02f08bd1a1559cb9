"""Conversion of W&B's command notation: `program:` and a list of words with `${macros}`.

A macro is a whole word, as in W&B: `${args}` inside a longer word, `${now:%Y}` or `${arg#--}` are texts. Only
`${envvar:NAME}` may be part of a word.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from stoker.sweeps.space import BUILT_IN
from stoker.sweeps.tree import DefinitionError

DEFAULT = ("${env}", "${interpreter}", "${program}", "${args}")
IGNORED_KEYS = ("apiVersion", "kind", "controller", "scheduler", "metrics")
"""Keys of W&B files that change nothing here."""

_WHOLE = re.compile(r"\$\{(?P<macro>[^{}]*)\}")
_VARIABLE = re.compile(r"\$\{envvar:(?P<name>[^{}]*)\}")
_FIELD = re.compile(r"\{\{|\}\}|(?<!\$)\{[^\W\d][\w.@/-]*(?::raw)?\}")
_MACROS = {
    "env": "/usr/bin/env",
    "interpreter": "python",
    **{
        name: f"{{{name}}}"
        for name in (
            *("args", "args_no_equals", "args_no_hyphens", "args_no_boolean_flags", "args_json"),
            *("args_json_file", "args_append_hydra", "args_override_hydra"),
        )
    },
}
assert {name for name in _MACROS if name.startswith("args")} <= BUILT_IN


def is_wandb(command: Any, program: Any) -> bool:
    """Whether a sweep is in W&B's notation; its runs get their parameters from `wandb.config` too."""
    return isinstance(command, list) or (command is None and program is not None)


def to_template(words: Sequence[Any], program: str | None, notes: list[str]) -> str:
    """Convert words to a template; raise DefinitionError for an unknown macro. May add to `notes`."""
    return " ".join(_word(word, program, notes) for word in words)


def _word(word: Any, program: str | None, notes: list[str]) -> str:
    if isinstance(word, (list, dict)):
        raise DefinitionError(f"a command as a list must be a list of words, not of {word!r}")
    text = str(word)
    whole = _WHOLE.fullmatch(text)
    if whole is not None and not whole["macro"].startswith("envvar:"):
        return _macro(whole["macro"], program)
    notes += [
        f"${{{macro}}} in '{text}' stays as it is: a macro is a word of its own"
        for macro in _WHOLE.findall(text)
        if macro in ("program", *_MACROS)
    ]
    found: list[str] = []
    at = 0
    for match in _VARIABLE.finditer(text):
        found += [_literal(text[at : match.start()]), _variable(match["name"])]
        at = match.end()
    found.append(_literal(text[at:]))
    return "".join(found) or "''"


def _literal(text: str) -> str:
    """Quote a text. Placeholders `{name}` and doubled braces are kept if it has no other braces."""
    if not text:
        return ""
    rest = _FIELD.sub("", _WHOLE.sub("", text))
    if "{" in rest or "}" in rest:
        return _escape(text)
    found: list[str] = []
    at = 0
    for match in _FIELD.finditer(text):
        found += [_escape(text[at : match.start()]), match[0]]
        at = match.end()
    return "".join([*found, _escape(text[at:])])


def _escape(text: str) -> str:
    return shlex.quote(text).replace("{", "{{").replace("}", "}}") if text else ""


def _variable(name: str) -> str:
    if not name.isidentifier():
        raise DefinitionError(f"${{envvar:{name}}}: '{name}' is not a variable name")
    return f'"${{{name}}}"'


def _macro(name: str, program: str | None) -> str:
    if name == "program":
        if program is None:
            raise DefinitionError("${program} is in the command: add program: SCRIPT")
        return _escape(program)
    if name not in _MACROS:
        known = ", ".join(f"${{{each}}}" for each in ("program", *_MACROS, "envvar:NAME"))
        raise DefinitionError(f"there is no ${{{name}}}, only {known}")
    return _MACROS[name]
