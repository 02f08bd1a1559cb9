"""Sections of RESULTS.md that are measured on other machines than the rest, and so kept apart."""

from __future__ import annotations

import os
import re

_VERDICT = "## Verdict"


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


def replace_section(path: str, name: str, section: str) -> None:
    """Put a section into a file, and leave the rest as it is."""
    text = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(with_section(text, name, section))
