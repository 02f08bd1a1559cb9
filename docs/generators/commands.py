"""Generator of the command reference: a page for each verb, made from its parser."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from stoker.cli.main import VERBS
from stoker.cli.parser import parser_of

if TYPE_CHECKING:
    from stoker.cli.arguments import Argument


class Verb:
    """A verb with all that its help knows."""

    def __init__(self, name: str) -> None:
        module = import_module(f"stoker.cli.verbs.{name}")
        self.name = name
        self.line = VERBS[name]
        self.summary: str = " ".join(module.SUMMARY.split())
        self.examples: str = module.EXAMPLES
        self.arguments: tuple[Argument, ...] = module.ARGUMENTS
        usage = parser_of(name, module).format_usage().removeprefix("usage: ")
        self.usage = usage.replace("\n       ", "\n").rstrip()

    def options(self) -> Iterator[tuple[str, str]]:
        """Return each argument as typed, and what it does."""
        for flags, details in self.arguments:
            text = details.get("help", "")
            if text != "==SUPPRESS==":
                yield _typed(flags, details), " ".join(str(text).replace("%%", "%").split())


def verbs() -> list[Verb]:
    """Return all verbs, in the order of `stoker --help`."""
    return [Verb(name) for name in VERBS]


def _typed(flags: tuple[str, ...], details: dict[str, Any]) -> str:
    value = details.get("metavar") or ""
    if "choices" in details and not value:
        value = "|".join(map(str, details["choices"]))
    if isinstance(value, tuple):
        value = " ".join(value)
    if not flags[0].startswith("-"):
        return value or flags[0]
    takes_value = details.get("action", "store") in ("store", "append")
    if takes_value and not value:
        value = flags[-1].lstrip("-").replace("-", "_").upper()
    return ", ".join(flags) + (f" {value}" if takes_value else "")


def page_of(verb: Verb) -> str:
    """Return the page of a verb, in Markdown."""
    rows = "".join(f"| `{_cell(typed)}` | {_cell(text)} |\n" for typed, text in verb.options())
    table = f"## Arguments\n\n| argument | meaning |\n|---|---|\n{rows}\n" if rows else ""
    return (
        f"# stoker {verb.name}\n\n{_escape(verb.summary)}\n\n```text\n{verb.usage}\n```\n\n"
        f"{table}## Examples\n\n```text\n{_dedent(verb.examples)}```\n"
    )


def index_of(names: list[Verb]) -> str:
    """Return the page that lists the verbs."""
    rows = "".join(f"| [`stoker {v.name}`]({v.name}.md) | {_cell(v.line)} |\n" for v in names)
    tree = "\n".join(verb.name for verb in names)
    return (
        "# Commands\n\nEvery verb of `stoker`, as `stoker VERB -h` explains it. "
        "`stoker help TOPIC` explains what verbs have in common.\n\n"
        f"| verb | what it does |\n|---|---|\n{rows}\n"
        f"```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
    )


def _dedent(examples: str) -> str:
    return "".join(line.removeprefix("  ") for line in examples.splitlines(keepends=True))


def _cell(text: str) -> str:
    return _escape(text).replace("|", "\\|")


def _escape(text: str) -> str:
    """Escape what Markdown would take for HTML or emphasis, outside of code."""
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        parts[place] = parts[place].replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
    return "`".join(parts)
