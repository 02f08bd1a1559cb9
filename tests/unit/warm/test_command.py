"""Which commands start warm, and what is learned for them."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.warm.command import (
    check_modules,
    find_script,
    make_warm,
    split_literal,
    why_cold,
)


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("python train.py", 1),
        ("/opt/venv/bin/python3.12 -u -OO train.py --lr 1", 3),
        ("python -W error train.py", 3),
        ("python3 -m package.module a", 1),
        ("python -c pass", 1),
    ],
)
def test_a_python_command_is_known_by_its_script_or_module(line: str, at: int) -> None:
    assert find_script(line.split()) == at


@pytest.mark.parametrize(
    "line",
    [
        "bash train.sh",
        "python",
        "python -",
        "python -i x.py",
        "python train",
        "python -X dev x.py",
        "python -m",
    ],
)
def test_other_commands_have_a_reason_not_to_start_warm(line: str) -> None:
    assert isinstance(find_script(line.split()), str)
    assert why_cold(None, line.encode()) == find_script(line.split())


@pytest.mark.parametrize(
    "line", ["a | b", "a $X", "a `b`", 'a "$b"', "a; b", "A=1 b", "a\\ b", "a *", "a 'b"]
)
def test_a_line_with_special_characters_needs_the_shell(line: str) -> None:
    assert split_literal(line.encode()) is None


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(st.text(alphabet="abc =./'\"-_$*", min_size=1), min_size=1))
def test_quoted_words_are_split_exactly(words: list[str]) -> None:
    found = split_literal(shlex.join(words).encode())
    assert found in (None, words)


def test_imports_search_the_real_folder_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "train.py").touch()
    (tmp_path / "link.py").symlink_to("real/train.py")

    found = make_warm(["python", "link.py"], ["torch"], str(tmp_path), "")

    assert not isinstance(found, str)
    assert (found.path, found.modules) == (str(tmp_path / "real"), ["torch"])


class TestAuto:
    def test_learns_first_and_then_uses_what_was_learned(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").touch()
        words, folder = ["python", "train.py"], str(tmp_path / "learned")
        first = make_warm(words, ["auto", "numpy"], str(tmp_path), folder)
        assert not isinstance(first, str)
        assert first.learn is not None
        assert first.learned is None
        Path(first.learn).write_text("[]")

        second = make_warm(words, ["auto", "numpy"], str(tmp_path), folder)

        assert not isinstance(second, str)
        assert (second.learn, second.learned, second.modules) == (None, first.learn, ["numpy"])

    def test_goes_on_learning_after_a_run_that_has_not_told_all(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").touch()
        words, folder = ["python", "train.py"], str(tmp_path / "learned")
        first = make_warm(words, ["auto"], str(tmp_path), folder)
        assert not isinstance(first, str)
        assert first.learn is not None
        for is_partial in (True, False):
            known = {"partial": is_partial, "modules": ["csv"], "seconds": 1.0}
            Path(first.learn).write_text(json.dumps(known))
            found = make_warm(words, ["auto"], str(tmp_path), folder)
            assert not isinstance(found, str)
            assert (found.learned, found.learn) == (
                first.learn,
                first.learn if is_partial else None,
            )

    def test_learns_again_for_a_changed_script_another_name_and_after_a_day(
        self, tmp_path: Path
    ) -> None:
        script = tmp_path / "train.py"
        script.touch()
        words, cwd, folder = ["python", "train.py"], str(tmp_path), str(tmp_path / "learned")

        def file(name: str = "") -> tuple[str | None, str | None]:
            found = make_warm(words, ["auto"], cwd, folder, name)
            assert not isinstance(found, str)
            return found.learn, found.learned

        path, _ = file()
        assert path is not None
        Path(path).write_text("[]")
        assert file() == (None, path)
        assert file("another")[0] not in (None, path)
        os.utime(path, (0, 0))
        assert file() == (path, None)
        script.write_text("import torch\n")
        assert file()[0] not in (None, path)


def test_names_of_modules_are_checked() -> None:
    assert check_modules(["torch", "torch.optim", "_x1"]) is None
    for name in ("1a", "a-b", "a b", "", "a..b", "a\n"):
        assert check_modules([name]) is not None
