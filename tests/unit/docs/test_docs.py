"""The documentation agrees with the program: commands parse, links have targets, made files are current."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import stoker
from generators import __main__ as written
from generators import commands, http_api, man_page
from stoker.cli.main import VERBS
from stoker.cli.parser import parser_of
from stoker.errors import UsageError

ROOT = Path(__file__).parents[3]
GENERATED = ("docs/reference/commands", "docs/reference/http.md", "docs/_build")
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    if not str(page.relative_to(ROOT)).startswith(GENERATED)
)
_BLOCK = re.compile(r"^```(sh|console|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def _commands_of(page: Path) -> Iterator[list[str]]:
    """Return each `stoker VERB …` of a page's blocks, as words."""
    for language, block in _BLOCK.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            is_session = language == "console" or block.startswith("$ ")
            if is_session and not line.startswith("$ "):
                continue  # output
            text = line.removeprefix("$ ").removeprefix("sudo ")
            if not text.startswith("stoker ") or "…" in text or "<" in text:
                continue
            words = shlex.split(text, comments=True)
            ends = [
                place for place, word in enumerate(words) if word in _SIGNS or word.endswith(";")
            ]
            yield words[: ends[0]] if ends else words


_SIGNS = ("|", "&&", "||", ">", ">>", "&", "2>", "2>&1")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_is_accepted_by_its_verb(page: Path) -> None:
    wrong = []
    for words in _commands_of(page):
        if words[1:2] in (["--version"], ["-h"], []):
            continue
        try:
            verb = "run_pty" if words[1] == "run" and "--pty" in words else words[1]
            parser_of(words[1], import_module(f"stoker.cli.verbs.{verb}")).read(words[2:])
        except (UsageError, ModuleNotFoundError) as error:
            wrong.append(f"{shlex.join(words)}: {error}")
    assert wrong == []


@pytest.mark.parametrize("page", ["how-to/python.md", "reference/python.md", "reference/api.md"])
def test_every_name_of_the_python_pages_is_a_name_of_stoker(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    named = re.findall(r"`(?:stoker\.)?(\w+Error)`|\bstoker\.(\w+)|auto\w+:: (\w+)", text)
    names = {"".join(each) for each in named} - {"TypeError"}
    assert names <= {*stoker.__all__, "wire"}


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    text = _CODE_BLOCK.sub("", page.read_text())
    plain = (re.sub(r"[`*\[\]]|\]\([^)]*\)", "", heading) for heading in _HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    wrong = []
    for link in _LINK.findall(_CODE_BLOCK.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" in link or (path and str(target.relative_to(ROOT)).startswith(GENERATED)):
            continue
        is_there = target.exists()
        if not is_there or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
            wrong.append(link)
    assert wrong == []


def test_the_manual_page_is_that_of_the_present_verbs() -> None:
    assert written.MAN_PAGE.read_text() == man_page.page(), "run `make man`"


def test_the_command_reference_has_every_verb_and_every_option() -> None:
    pages = {verb.name: commands.page_of(verb) for verb in commands.verbs()}
    assert list(pages) == list(VERBS)
    assert all(f"({name}.md)" in commands.index_of(commands.verbs()) for name in VERBS)
    for name, page in pages.items():
        parser = parser_of(name, import_module(f"stoker.cli.verbs.{name}"))
        flags = re.findall(r"--[a-z-]+", parser.format_usage())
        assert [flag for flag in flags if flag not in page] == []


def test_the_http_reference_explains_every_type_that_it_names() -> None:
    page = http_api.page()
    anchors = {heading.lower() for heading in re.findall(r"^### (\w+)$", page, re.MULTILINE)}
    assert set(re.findall(r"\(#(\w+)\)", page)) <= anchors
    assert "### POST /v1/add" in page
