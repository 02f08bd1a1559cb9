"""What was measured before, or elsewhere, stays in RESULTS.md."""

from __future__ import annotations

from pathlib import Path

from benchmarks.sections import replace_section, section_of, with_header, with_section

TEXT = "# Benchmarks\n\n## gap\n\nold\n\n## Verdict\n\nAll hold.\n"


def test_a_new_section_stands_before_the_verdict() -> None:
    text = with_section(TEXT, "gpu_sharing", "## gpu_sharing\n\nnew\n")
    assert text.index("## gap") < text.index("## gpu_sharing") < text.index("## Verdict")


def test_a_section_takes_the_place_of_the_old_one_and_of_nothing_else() -> None:
    once = with_section(TEXT, "gpu_sharing", "## gpu_sharing\n\nfirst\n")
    twice = with_section(once, "gpu_sharing", "## gpu_sharing\n\nsecond\n")
    assert twice == once.replace("first", "second")


def test_a_section_ends_where_the_next_begins() -> None:
    assert section_of(TEXT, "gap") == "## gap\n\nold\n\n"
    assert section_of(TEXT, "gpu_sharing") is None


def test_a_file_that_is_not_there_yet_is_made(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    replace_section(str(path), "gap", "## gap\n\nnew\n")
    assert section_of(path.read_text(), "gap") is not None


def test_another_beginning_leaves_the_sections_and_takes_back_the_verdict() -> None:
    assert with_header(TEXT, "# Anew\n") == "# Anew\n\n## gap\n\nold\n"
