from __future__ import annotations

import re
import shlex

import pytest

from integration.doc_page import DOCS
from integration.test_cli_help import stoker
from stoker.cli.help_topics import TOOLS, TOPICS, explain
from stoker.cli.main import VERBS


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_is_explained_with_examples(topic: str) -> None:
    ended = stoker("help", topic)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\n  stoker " in ended.stdout
    assert max(map(len, ended.stdout.splitlines())) <= 110


def examples() -> list[str]:
    """Every example of every topic and verb, without the words that explain it."""
    from importlib import import_module

    texts = [explain(topic) for topic in TOPICS]
    texts += [import_module(f"stoker.cli.verbs.{verb}").EXAMPLES for verb in VERBS]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return sorted({line.split("  ")[0] for line in lines if line.startswith("stoker ")})


@pytest.mark.parametrize("example", examples())
def test_every_example_is_accepted_by_its_verb(example: str) -> None:
    from importlib import import_module

    from stoker.cli.parser import parser_of

    words = shlex.split(example, comments=True)
    for sign in (">", ">>", "&&", "|", ";"):
        if sign in words:
            words = words[: words.index(sign)]
    module = import_module(f"stoker.cli.verbs.{words[1]}")
    if getattr(module, "TAKES_COMMAND", False) and "--" in words:
        words = words[: words.index("--")]
    parser_of(words[1], module).read([word.rstrip(";") for word in words[2:]])


def test_help_of_a_verb_is_the_same_as_its_own_help() -> None:
    assert stoker("help", "kill").stdout == stoker("kill", "-h").stdout


def test_all_topics_are_in_the_overview() -> None:
    overview = stoker("help").stdout

    assert all(topic in overview for topic in TOPICS)


def test_an_unknown_topic_is_answered_with_the_nearest() -> None:
    ended = stoker("help", "dependency")

    assert ended.returncode == 2
    assert ended.stderr == "stoker: no topic 'dependency': did you mean 'dependencies'?\n"


@pytest.mark.parametrize("tool", TOOLS)
def test_an_older_tools_name_leads_to_its_page(tool: str) -> None:
    """The page's commands are executed by a test of their own."""
    page = (DOCS / "how-to" / "migrate" / f"{tool}.md").read_text().replace("\\|", "|")
    text = stoker("help", tool).stdout

    assert f"docs/how-to/migrate/{tool}.md" in text
    native = re.findall(r"^  (stoker .*?)(?:   .*)?$", text, re.MULTILINE)
    assert len(native) > 3
    for command in native:
        assert command in page, command


@pytest.mark.parametrize("word", ["GPUPeasy", "simple-gpu-scheduler", "simple_hypersearch"])
def test_an_older_tools_other_names_are_known_too(word: str) -> None:
    assert "docs/how-to/migrate/" in stoker("help", word).stdout
