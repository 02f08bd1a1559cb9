from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stoker.cli.main import VERBS

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def stoker(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stoker", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_examples(verb: str) -> None:
    ended = stoker(verb, "-h")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "examples:\n" in ended.stdout
    assert f"stoker {verb}" in ended.stdout.partition("examples:")[2]
    assert max(map(len, ended.stdout.splitlines())) <= 110


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "demo"])
def test_every_verb_is_in_a_how_to(verb: str) -> None:
    text = "".join(path.read_text() for path in HOW_TO.glob("*.md"))

    assert f"stoker {verb}" in text


def test_an_unknown_verb_is_answered_with_the_nearest() -> None:
    ended = stoker("ad", "true")

    assert ended.returncode == 2
    assert ended.stderr == "stoker: no such verb 'ad': did you mean 'add'?\n"
