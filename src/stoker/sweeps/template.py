"""Command template of a sweep: a shell line with placeholders that are filled in for each run.

    python train.py --lr {lr} {args} --out {dir}

Values are quoted as their position requires; `{x:raw}` is not quoted; `{{` and `}}` are braces; `${HOME}` is
left to the shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec

from stoker.sweeps.cell import Cell, check_text
from stoker.sweeps.hydra import to_hydra
from stoker.sweeps.quoting import QuotingContext, Scanner, escape, quote
from stoker.sweeps.space import BUILT_IN
from stoker.sweeps.tree import DefinitionError, did_you_mean

_TOKEN = re.compile(r"\$\{(?P<macro>[^{}]*)\}|\{\{|\}\}|\{(?P<field>[^{}]*)\}|[{}]")
_FIELD = re.compile(r"(?P<name>[^\W\d][\w.@/-]*)(?P<raw>:raw)?")
_WHOLE = BUILT_IN - {"dir", "id", "index"}
_SUGGESTED = ("args", "hydra", "params_json", "dir", "id", "index")
_MACROS = _WHOLE - {"hydra", "params_json"}

Point = dict[str, Cell]


class RunFacts(msgspec.Struct, frozen=True, gc=False):
    """Facts about a run that its command needs."""

    point: Point
    params_json: str
    id: str
    dir: str
    index: int


class Field(NamedTuple):
    """A placeholder and the quotes around it."""

    name: str
    raw: bool
    context: QuotingContext


class Template:
    """A command with placeholders; raises DefinitionError if it cannot be parsed."""

    def __init__(self, text: str) -> None:
        check_text(text)
        self.text = text
        pieces = list(_parse(text))
        self.fields = [piece for piece in pieces if isinstance(piece, Field)]
        literals = ["%s" if isinstance(p, Field) else p.replace("%", "%%") for p in pieces]
        self._form = "".join(literals)
        self._fillers = [_filler(field) for field in self.fields]
        self._portable = [_folder_told(field) or _filler(field) for field in self.fields]
        if not text.strip():
            raise DefinitionError("the command is empty")

    def check(
        self, always: Collection[str], sometimes: Collection[str], *, may_pass_none: bool = False
    ) -> None:
        """Refuse placeholders that some runs do not have, and parameters that are never used.

        With `may_pass_none`, a command that uses no parameter at all is right.
        """
        used = {field.name for field in self.fields}
        names = [*always, *sometimes]
        for name in sorted(used - BUILT_IN):
            if name in sometimes:
                raise DefinitionError(
                    f"{{{name}}} is in the command, but not every run has '{name}': use {{args}}"
                    " or {hydra} instead"
                )
            if name == "seed" and name not in always:
                raise DefinitionError(
                    "{seed} is in the command, but there is no seed: add repeats, or a seed"
                )
            if name not in always:
                known = [*names, *_SUGGESTED]
                raise DefinitionError(
                    f"{{{name}}} is in the command, but is not a parameter: {did_you_mean(name, known)};"
                    " for a brace write {{"
                )
        unused = [name for name in names if name not in used]
        if may_pass_none and len(unused) == len(names):
            return
        if unused and not used & _WHOLE:
            raise DefinitionError(
                f"the command never uses {', '.join(unused)}: add {{{unused[0]}}}, {{args}},"
                " {hydra} or {params_json}"
            )

    def fill(self, facts: RunFacts) -> str:
        """Return the command of one run."""
        return self._form % tuple([filler(facts) for filler in self._fillers])

    def fill_portably(self, facts: RunFacts) -> str:
        """Return the same for any machine: the run's folder is taken from its environment."""
        return self._form % tuple([filler(facts) for filler in self._portable])


def _parse(text: str) -> Iterator[str | Field]:
    scanner = Scanner()
    literal: list[str] = []
    at = 0
    for match in _TOKEN.finditer(text):
        before = text[at : match.start()]
        at = match.end()
        literal.append(before)
        scanner.read(before)
        token = match[0]
        if token in ("{{", "}}"):
            literal.append(token[0])
            scanner.read(token[0])
        elif match["macro"] is not None and match["macro"] not in _MACROS:
            literal.append(token)
            scanner.read(token)
        else:
            yield "".join(literal)
            literal.clear()
            yield _field(match["macro"] or match["field"], token, scanner.context)
            scanner.read("x")
    yield "".join(literal) + text[at:]
    scanner.read(text[at:])
    if scanner.unclosed is not None:
        raise DefinitionError(f"the command has a {scanner.unclosed} that is not closed")


def _field(inside: str | None, token: str, context: QuotingContext) -> Field:
    found = _FIELD.fullmatch(inside or "")
    if found is None:
        what = f"'{token}' in the command is not a placeholder"
        if inside and re.fullmatch(r"[A-Za-z_][\w.]*:.*", inside):
            raise DefinitionError(
                f"{what}: only {{name}} and {{name:raw}} are; for a brace write {{{{"
            )
        raise DefinitionError(f"{what}: for a brace write {{{{ or }}}}")
    if context is QuotingContext.BACKTICK and not found["raw"]:
        raise DefinitionError(f"{token} is in backticks, where quoting fails: write $(…) instead")
    return Field(found["name"], found["raw"] is not None, context)


def _folder_told(field: Field) -> Callable[[RunFacts], str] | None:
    """Return a filler that leaves the run's folder to the shell; None for other fields."""
    if field.name not in _PATHS:
        return None
    path = f"${{STOKER_RUN_DIR}}{_PATHS[field.name]}"
    if not field.raw and field.context is QuotingContext.PLAIN:
        path = f'"{path}"'
    elif field.context is QuotingContext.SINGLE:
        path = f"'\"{path}\"'"
    return lambda _facts: path


def _filler(field: Field) -> Callable[[RunFacts], str]:
    name, context = field.name, field.context
    words = _WORDS.get(name)
    if words is not None and context is QuotingContext.PLAIN:
        return lambda facts: " ".join(words(facts.point))
    if words is not None:
        return lambda facts: escape(" ".join(words(facts.point)), context)
    text = _TEXTS.get(name)
    if text is not None:
        if field.raw:
            return text
        return lambda facts: quote(text(facts), context)
    if field.raw:
        return lambda facts: facts.point[name].text
    if context is QuotingContext.PLAIN:
        return lambda facts: facts.point[name].quoted
    return lambda facts: escape(facts.point[name].text, context)


_PATHS = {"dir": "", "args_json_file": "/params.json"}
_TEXTS: dict[str, Callable[[RunFacts], str]] = {
    "params_json": lambda facts: facts.params_json,
    "args_json": lambda facts: facts.params_json,
    "args_json_file": lambda facts: f"{facts.dir}/params.json",
    "dir": lambda facts: facts.dir,
    "id": lambda facts: facts.id,
    "index": lambda facts: str(facts.index),
}


def _argument(name: str, cell: Cell) -> str:
    """Return `--name=value` as a shell word."""
    if cell.quoted is cell.text:
        return f"--{name}={cell.text}"
    return shlex.quote(f"--{name}={cell.text}")


def _pairs(point: Point, prefix: str) -> Sequence[str]:
    """Return `name=value` behind a prefix as shell words."""
    return [shlex.quote(f"{prefix}{name}={cell.text}") for name, cell in point.items()]


def _with_flags(point: Point) -> Sequence[str]:
    """Return W&B's arguments with booleans as flags: present or absent, without a value."""
    return [
        f"--{name}" if cell.value is True else _argument(name, cell)
        for name, cell in point.items()
        if cell.value is not False
    ]


_WORDS: dict[str, Callable[[Point], Sequence[str]]] = {
    "args": lambda point: [_argument(name, cell) for name, cell in point.items()],
    "args_no_hyphens": lambda point: _pairs(point, ""),
    "args_append_hydra": lambda point: _pairs(point, "+"),
    "args_override_hydra": lambda point: _pairs(point, "++"),
    "args_no_equals": lambda point: [
        word for name, cell in point.items() for word in (f"--{name}", cell.quoted)
    ],
    "args_no_boolean_flags": _with_flags,
    "hydra": lambda point: [
        shlex.quote(f"{name}={to_hydra(cell.value)}") for name, cell in point.items()
    ],
}
