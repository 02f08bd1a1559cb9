from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from stoker.sweeps.files import read_yaml
from stoker.sweeps.parameters import plain

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), max_size=8)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 100000.0),
        ("010", 10),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("~", None),
        ("", None),
        ("0x10", 16),
        ("0o10", 8),
        ("1_000", "1_000"),
        ("12:30:00", "12:30:00"),
        ("2026-01-01", "2026-01-01"),
        ("'1e-3'", "1e-3"),
        ("!!str 1", "1"),
        (".5", 0.5),
        ("5.", 5.0),
        ("+3", 3),
        ("1.2.3", "1.2.3"),
        ("=", "="),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    found = read_yaml(f"a: {text}", "s.yaml")["a"]

    assert found == value
    assert type(found) is type(value)


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4))
def test_written_yaml_is_read_back_unchanged(values: dict[str, Any]) -> None:
    # In blocks: ruamel's own reader takes {?a: 1} for something else than its writer meant.
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    stream = io.StringIO()
    yaml.dump(values, stream)

    assert plain(read_yaml(stream.getvalue(), "s.yaml")) == values


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4))
def test_json_is_yaml(values: dict[str, Any]) -> None:
    assert plain(read_yaml(json.dumps(values), "s.yaml")) == values
    assert plain(read_yaml(json.dumps(values, ensure_ascii=False, indent=1), "s.yaml")) == values


def test_anchors_and_merges_work() -> None:
    tree = read_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: *a\n", "s.yaml")

    assert plain(tree) == {"a": {"x": 1, "y": 2}, "b": {"y": 3, "x": 1}, "c": {"x": 1, "y": 2}}
