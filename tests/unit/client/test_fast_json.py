from __future__ import annotations

import builtins
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.client.fast_json import dumps, loads

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values)
def test_values_are_encoded_and_decoded_as_by_json(value: Any) -> None:
    assert json.loads(dumps(value)) == value
    assert loads(json.dumps(value)) == value


@pytest.mark.parametrize("text", ["", "{", "[1,]", "{} x", "nul", '"\n"'])
def test_invalid_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        loads(text)


def test_it_works_without_the_c_core(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *details: Any, **more: Any) -> Any:
        if name == "_json":
            raise ImportError(name)
        return real(name, *details, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert loads(dumps({"a": [1, "é"]})) == {"a": [1, "é"]}


def test_a_value_that_json_cannot_encode_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        dumps({"a": object()})
    with pytest.raises(ValueError):
        dumps(float("inf"))
