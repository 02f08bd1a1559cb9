"""The title of a cell's job, which every user of the machine can read."""

from __future__ import annotations

import pytest

from stoker.notebook.cell_job import make_title


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("# train the baseline\ntrain()", "cell: train the baseline"),
        ("\n  ## a\x1b[31m\u202eb\nx", "cell: a[31mb"),
        ("#" + "x" * 90, "cell: " + "x" * 59 + "…"),
    ],
)
def test_a_cell_has_the_comment_of_its_first_line_as_title(source: str, title: str) -> None:
    assert make_title(source) == title


@pytest.mark.parametrize("before", ["", "#\n", "# \x1b\n", "\n\n", "x = 1  # note\n"])
def test_code_is_no_title(before: str) -> None:
    source = f"{before}os.environ['WANDB_API_KEY'] = 'abc'  # the key"

    title = make_title(source)

    assert len(title) == len("cell: 12345678")
    assert set(title.removeprefix("cell: ")) <= set("0123456789abcdef")
    assert title == make_title(source) != make_title(f"{source}d")


def test_any_text_has_a_title() -> None:
    assert make_title("x = '\ud800'") != make_title("")
