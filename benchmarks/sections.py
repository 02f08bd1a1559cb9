"""Sections of RESULTS.md, one for each benchmark, so that each can be measured again alone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

_VERDICT = "## Verdict"
_SECTIONS = re.compile(r"^## ", re.MULTILINE)


def section_of(text: str, name: str) -> str | None:
    """A section with its heading, up to the next one; None if there is none."""
    match = re.search(rf"^## {re.escape(name)}\n.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return match[0] if match else None


def with_section(text: str, name: str, section: str) -> str:
    """The text with a section in place of the old one, else before the verdict, else at the end."""
    section = section.rstrip("\n") + "\n\n"
    old = section_of(text, name)
    if old is not None:
        return text.replace(old, section)
    if _VERDICT in text:
        return text.replace(_VERDICT, section + _VERDICT, 1)
    return f"{text.rstrip()}\n\n{section}"


def with_header(text: str, header: str) -> str:
    """The text with another beginning, and without a verdict, which was on other figures."""
    first = _SECTIONS.search(text)
    sections = text[first.start() :] if first else ""
    verdict = section_of(sections, _VERDICT.removeprefix("## "))
    return f"{header.rstrip()}\n\n{sections.replace(verdict or '', '')}".rstrip() + "\n"


def replace_header(path: str, header: str) -> None:
    """Give a file another beginning."""
    _rewrite(path, lambda text: with_header(text, header))


def replace_section(path: str, name: str, section: str) -> None:
    """Put a section into a file, and leave the rest as it is."""
    _rewrite(path, lambda text: with_section(text, name, section))


def _rewrite(path: str, change: Callable[[str], str]) -> None:
    text = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(change(text))
