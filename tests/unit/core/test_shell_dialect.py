from __future__ import annotations

import pytest

from stoker.core.shell_dialect import explain_bash


@pytest.mark.parametrize(
    ("line", "feature"),
    [
        ("source venv/bin/activate && python a.py", "source"),
        ("cd x; source env.sh", "source"),
        ("if [[ -e a ]]; then b; fi", "[["),
        ("! [[ -e a ]] && b", "[["),
        ("for i in {1..3}; do echo $i; done", "{1..3}"),
        ("echo {a..z}", "{1..3}"),
        ("diff <(a) <(b)", "<(…)"),
        ("conda activate x && python a.py", "conda activate"),
        ("true\nsource x", "source"),
    ],
)
def test_a_line_for_bash_is_explained(line: str, feature: str) -> None:
    assert feature in (explain_bash(line) or "")


@pytest.mark.parametrize(
    "line",
    [
        "python train.py --source data --out ../x",
        "echo 'if [[ a ]]'",
        'echo "{1..3}"',
        "python a.py --range ${A..B}",
        "grep -E '[[:space:]]' f",
        "awk '{print $1}' source",
        ". venv/bin/activate",
        "conda run -n x python a.py",
        "(cd x && make)",
    ],
)
def test_an_ordinary_line_is_not(line: str) -> None:
    assert explain_bash(line) is None
