from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.sweeps.cell import make_cell
from stoker.sweeps.conditions import Condition, Match
from stoker.sweeps.tree import DefinitionError


def holds(text: str, **values: Any) -> bool:
    cells = {name.replace("__", "."): make_cell(value) for name, value in values.items()}
    return Condition(text).holds(cells)


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("a == 1", True),
        ("a == 1.0", True),
        ("a == '1'", False),
        ("a == true", False),
        ("b == true", True),
        ("b", True),
        ("not b", False),
        ("opt.name == 'sgd'", True),
        ("opt.name in ['sgd', 'adam']", True),
        ("opt.name not in ('sgd', 'adam')", False),
        ("'sg' in opt.name", True),
        ("0 < a <= 1 and opt.name != 'adam'", True),
        ("a > 5 or opt.name == 'sgd'", True),
        ("a == -1", False),
        ("x == 1", False),
        ("x != 1", False),
        ("not x == 1", True),
        ("layers == [64, 64]", True),
        ("64 in layers", True),
        ("n is None", True),
        ("n == null", True),
    ],
)
def test_conditions_are_evaluated_like_python(text: str, truth: bool) -> None:
    assert holds(text, a=1, b=True, opt__name="sgd", layers=[64, 64], n=None) is truth


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('x')",
        "a.__class__()",
        "(lambda: 1)()",
        "[x for x in a]",
        "a[0] == 1",
        "a + 1 == 2",
        "f'{a}' == 'x'",
        "(a := 3) == 3",
        "a if b else c",
        "a @ b",
        "b'x' == a",
        "...",
        "a == 1; b",
        "a = 1",
        "",
        "\0",
        "a.b[1].c == 2",
        "(" * 500 + "a" + ")" * 500,
    ],
)
def test_other_python_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError):
        Condition(text)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(DefinitionError):
        Condition(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("state = 'done'", "state == 'done'"),
        ("state = 'a = b' AND lr<0.2", "state == 'a = b' and lr<0.2"),
        ("lr <> 1 && !x", None),
        ("lr <> 1||x=2", "lr != 1 or x==2"),
        ("state == done and", None),
    ],
)
def test_a_condition_of_sql_or_c_is_refused_with_the_one_that_is_meant(
    text: str, meant: str | None
) -> None:
    with pytest.raises(DefinitionError) as caught:
        Condition(text)
    hint = f": did you mean {meant} ?" if meant else ": invalid syntax"
    assert str(caught.value) == f"cannot read the condition '{text}'{hint}"


def test_a_condition_knows_its_parameters() -> None:
    assert Condition("a.b > 1 and c in [d, 2] or true").names == {"a.b", "c", "d"}


def test_a_mapping_matches_all_of_its_entries() -> None:
    match = Match({"a": [1, 2], "b": ["x"]})

    assert match.holds({"a": make_cell(2), "b": make_cell("x")})
    assert not match.holds({"a": make_cell(3), "b": make_cell("x")})
    assert not match.holds({"a": make_cell(2)})
