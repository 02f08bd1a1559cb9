"""Parameters of a run: the template of its command, and the numbers that vary from run to run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

Params = tuple[tuple[str, float], ...]
"""Names and values of a run's numeric parameters, in a fixed order."""

_MOST = 24
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_NAME = re.compile(r"([A-Za-z][\w.-]*)[= ]$")
_LABEL = re.compile(r"(?:^|[._-])(?:seeds?|random_state|rng|fold|repeat|replica|trial)$")


class Template(msgspec.Struct, frozen=True):
    """A command without its numbers, and the numbers."""

    text: str
    params: Params = ()


class CommandFacts(msgspec.Struct, frozen=True):
    """What tells the kind of a job: the words of its command, its folder, and its run in a sweep."""

    words: list[str]
    cwd: str
    run_dir: str | None = None
    params: Mapping[str, object] | None = None  # of its run


def template_of(facts: CommandFacts) -> Template:
    """Return a job's template and parameters: those of its run in a sweep, or those in its command.

    Runs of a sweep whose parameters differ in something other than numbers have different templates.
    """
    found = mask(facts.words, facts.run_dir)
    text = f"{facts.cwd}\0{found.text}"
    if not facts.params:
        return Template(text, found.params)
    return Template(f"{text}\0{_texts_in(facts.params)}", _numbers_in(facts.params))


def mask(words: Sequence[str], run_dir: str | None = None) -> Template:
    """Return a command's template: its words without what varies from run to run.

    Numbers, hashes and the run's own folder are masked. Numbers in names are masked too: `run3` and `run4`
    are far more often two runs of one kind than two kinds. Whether a number matters is learned.
    """
    text = " ".join(words)
    if run_dir:
        text = text.replace(run_dir, "@")
    text = _HASH.sub("#", text)
    found = list(_NUMBER.finditer(text))
    params = tuple(
        (_name_of(text, match.start(), position), float(match[0]))
        for position, match in enumerate(found[:_MOST])
    )
    return Template(_NUMBER.sub("#", text), _unique(params))


def is_size(name: str, value: float) -> bool:
    """Whether a parameter may be a size, which costs memory: a whole number that is no seed or the like."""
    return value.is_integer() and _LABEL.search(name.lower()) is None


def sizes_of(params: Params) -> Params:
    """Return the parameters that may be sizes."""
    return tuple((name, value) for name, value in params if is_size(name, value))


def _numbers_in(values: Mapping[str, object]) -> Params:
    """Return the numeric parameters of a run, those in groups with dotted names."""
    return tuple(sorted(_flatten("", values)))[:_MOST]


def _texts_in(values: Mapping[str, object]) -> str:
    """Return the parameters of a run that are no numbers."""
    return " ".join(
        f"{name}={value}"
        for name, value in sorted(values.items())
        if not isinstance(value, (int, float, dict))
    )


def _flatten(prefix: str, values: Mapping[str, object]) -> Iterable[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(f"{prefix}{name}.", value)
        elif isinstance(value, (int, float)) and abs(value) < float("inf"):
            yield f"{prefix}{name}", float(value)


def _name_of(text: str, at: int, position: int) -> str:
    """Return the option that a number belongs to: `bs` of `--bs 64` and of `bs=64`."""
    found = _NAME.search(text[max(0, at - 80) : at])
    return found[1] if found else f"number {position + 1}"


def _unique(params: Params) -> Params:
    """Number the later ones of several parameters with one name."""
    seen: dict[str, int] = {}
    named = []
    for name, value in params:
        seen[name] = count = seen.get(name, 0) + 1
        named.append((name if count == 1 else f"{name} ({count})", value))
    return tuple(named)
