"""What a command line needs from its shell: features of bash that /bin/sh may lack."""

from __future__ import annotations

import re

_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
# A word begins a command at the start of the line, and after these.
_BEGIN = r"(?:^|[;&|(]|\b(?:then|do|else|if|elif|while|until)\s|!\s)\s*"
_FEATURES = (
    ("[[", re.compile(_BEGIN + r"\[\[\s", re.MULTILINE)),
    ("source", re.compile(_BEGIN + r"source\s", re.MULTILINE)),
    ("<(…)", re.compile(r"[<>]\(")),
    ("{1..3}", re.compile(r"(?<!\$)\{[^{}\s]+\.\.[^{}\s]+\}")),
)
_CONDA = re.compile(_BEGIN + r"conda\s+activate\b", re.MULTILINE)
# Any line that uses one of the features contains one of these; this test is cheap.
MARKS = ("[[", "source", "..", "conda", "<(", ">(")


def explain_bash(line: str) -> str | None:
    """Return what a line needs that /bin/sh may lack, and the remedy; None for an ordinary line."""
    if not any(mark in line for mark in MARKS):
        return None
    bare = _QUOTED.sub('""', line)
    if _CONDA.search(bare):
        return (
            "conda activate works in interactive shells: activate first, jobs have your environment;"
            " or write conda run -n ENV CMD"
        )
    for name, pattern in _FEATURES:
        if pattern.search(bare):
            return f"/bin/sh does not know {name}: --shell bash does"
    return None
