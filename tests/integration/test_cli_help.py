from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stoker import __version__
from stoker.cli.main import ALIASES, VERBS

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


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("delte", "did you mean 'delete'?"),
        ("retyr", "did you mean 'retry'?"),
        ("Kill", "did you mean 'kill'?"),
        ("erase", "stoker --help lists the verbs"),
        ("stop", "stoker kill ends jobs, stoker pause stops them"),
        ("restart", "stoker retry runs jobs again"),
    ],
)
def test_a_suggestion_never_names_a_verb_that_does_something_else(word: str, hint: str) -> None:
    ended = stoker(word, "12")

    assert ended.returncode == 2
    assert ended.stderr.startswith(f"stoker: no such verb '{word}': {hint}")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("alias", ALIASES)
def test_a_word_of_another_tool_is_taken_as_its_verb(alias: str) -> None:
    ended = stoker(alias, "-h")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"usage: stoker {ALIASES[alias][0]} ")
    assert stoker("help", alias).stdout == ended.stdout or alias == "queue"


@pytest.mark.parametrize("word", ["--version", "-V", "-v", "version"])
def test_the_version_is_printed(word: str) -> None:
    assert stoker(word).stdout == f"stoker {__version__}\n"
