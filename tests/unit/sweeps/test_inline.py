from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.sweeps.distributions import Distribution
from stoker.sweeps.functions import Zipped
from stoker.sweeps.inline import read_values, read_word
from stoker.sweeps.scalars import read_scalar
from stoker.sweeps.tree import DefinitionError

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)

BARE = re.compile(r"[^\s,\[\]{}()'\"=\\:][^,\[\]{}()'\"\\:]*")


def write_values(values: Sequence[Any]) -> str:
    """Write values so that `read_values` reads them back."""
    return ",".join(map(write_value, values))


def write_value(value: Any) -> str:
    """Write one value so that it can be read back."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            plain = BARE.fullmatch(value) and value == value.strip() and read_scalar(value) == value
            return value if plain else quote(value)
        case list():
            return f"[{','.join(map(write_value, value))}]"
        case dict():
            pairs = (f"{quote(key)}:{write_value(item)}" for key, item in value.items())
            return f"{{{','.join(pairs)}}}"
    return json.dumps(value)


def quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_written_values_are_read_back_unchanged(values: list[Any]) -> None:
    found = read_values(write_values(values))

    assert found == values
    assert repr(found) == repr(values)  # 1, 1.0 and True are equal, but not the same


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    values: object = None
    with contextlib.suppress(DefinitionError):
        values = read_values(text)
    if isinstance(values, list):
        assert [read_values(write_value(value)) for value in values] == [[v] for v in values]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1e-3,3e-4", [0.001, 0.0003]),
        ("a, b ,c", ["a", "b", "c"]),
        ("'a,b',\"it's\"", ["a,b", "it's"]),
        ("it's", ["it's"]),
        (r"'it\'s \n'", [r"it's \n"]),
        ("[64,64],[128]", [[64, 64], [128]]),
        ("[]", [[]]),
        ("{a:1,'b c':[x]}", [{"a": 1, "b c": ["x"]}]),
        ("null,true,010,no", [None, True, 10, "no"]),
        ("data/x.csv,s3://b/k?v=1", ["data/x.csv", "s3://b/k?v=1"]),
        ("f(x,y),g", ["f(x,y)", "g"]),
        ("choice(a, 'b c', 3)", ["a", "b c", 3]),
        ("range(3)", [0, 1, 2]),
        ("range(1,10,4)", [1, 5, 9]),
        ("range(start=1,stop=3)", [1, 2]),
        ("range(3,0,-1)", [3, 2, 1]),
        ("range(0,0.5,0.1)", [0.0, 0.1, 0.2, 0.3, 0.4]),
        ("0,range(5,7)", [0, 5, 6]),
        ("linspace(0,1,5)", [0.0, 0.25, 0.5, 0.75, 1.0]),
        ("linspace(0,0.3,4)", [0.0, 0.1, 0.2, 0.3]),
        ("linspace(2,3,1)", [2.0]),
        ("logspace(-5,-1,5)", [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]),
        ("''", [""]),
    ],
)
def test_typed_values_are_parsed(text: str, values: list[Any]) -> None:
    assert list(read_values(text)) == values  # type: ignore[arg-type]


def test_distributions_are_functions() -> None:
    assert read_values("loguniform(1e-5, 1e-1)") == Distribution(
        shape="log_uniform_values", min=1e-5, max=0.1
    )
    assert read_values("uniform(max=1,min=0)") == Distribution(shape="uniform", min=0, max=1)
    assert read_values("randint(1, 6)") == Distribution(shape="int_uniform", min=1, max=6)
    assert read_values("normal(0, 2)") == Distribution(shape="normal", mu=0, sigma=2)


def test_zips_name_several_parameters() -> None:
    word = read_word("a,b=zip([1,2],range(2))")

    assert word.names == ("a", "b")
    assert isinstance(word.values, Zipped)
    assert [list(column) for column in word.values.columns] == [[1, 2], [0, 1]]


def test_a_value_may_hold_equals_signs() -> None:
    assert read_word("x=a=b").values == ["a=b"]
    assert read_word("opt.name=a").names == ("opt.name",)
