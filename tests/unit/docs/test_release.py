"""A release is refused whose tag, version, changelog or citation disagree."""

from __future__ import annotations

from pathlib import Path

from release.check_release import ROOT, find_mistakes
from stoker import __version__


def test_a_tag_that_is_not_the_version_is_refused() -> None:
    assert any("v99.0" in mistake for mistake in find_mistakes("v99.0", ROOT))


def test_a_release_needs_its_section_and_its_citation(tmp_path: Path) -> None:
    (tmp_path / "src" / "stoker").mkdir(parents=True)
    (tmp_path / "src" / "stoker" / "__init__.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n")
    (tmp_path / "CITATION.cff").write_text("version: 1.1.0\n")
    assert len(find_mistakes("v1.2.0", tmp_path)) == 2
    (tmp_path / "CHANGELOG.md").write_text("## [1.2.0] - 2026-12-01\n")
    (tmp_path / "CITATION.cff").write_text("version: 1.2.0\n")
    assert find_mistakes("v1.2.0", tmp_path) == []


def test_the_citation_names_the_present_version() -> None:
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
