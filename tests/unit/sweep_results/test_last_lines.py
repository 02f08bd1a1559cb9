"""The last values in a long file of metrics: found without decoding it, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.sweep_results.collect import to_number
from stoker.sweep_results.curves import _curve, _plain_curve
from stoker.sweep_results.last_lines import last_values

LINES = [{"step": n, "loss": 1 / (n + 1), "time": float(n)} for n in range(500)]


def encode(entries: list[Any], *, compact: bool = True) -> bytes:
    separators = (",", ":") if compact else None
    return "".join(json.dumps(each, separators=separators) + "\n" for each in entries).encode()


@pytest.mark.parametrize("compact", [True, False])
def test_the_last_value_of_each_name_is_found_wherever_it_is(compact: bool) -> None:
    entries = [*LINES, {"step": 500, "val_acc": 0.5}, *LINES]
    entries = [{"seed": 7}, *entries, {"val_acc": 0.75}, {"step": 9}]
    wanted: dict[str, Any] = {}
    for entry in entries:
        wanted.update(entry)
    assert last_values(encode(entries, compact=compact)) == wanted


@pytest.mark.parametrize(
    "odd",
    [
        b'{"only here":1}\n',
        b'{"step":1,"nested":{"loss":2}}\n',
        b'{"step":1,"loss":"a \\"loss\\": b"}\n',
        b'{"step":1,"lo\n',
        b"[1]\n",
        b"\n",
        b"12\n",
    ],
)
def test_a_file_that_may_say_more_than_its_ends_is_decoded_whole(odd: bytes) -> None:
    data = encode(LINES)
    assert last_values(data) is not None
    assert last_values(data + odd + data) is None
    assert last_values(data + b'{"step":') is None
    assert last_values(data[:100]) is None


values = st.one_of(
    st.integers(-3, 3), st.floats(-2, 2), st.booleans(), st.none(), st.text(max_size=3)
)
entry = st.dictionaries(st.sampled_from(["a", "b", 'c"', "\u00e9", "step"]), values, max_size=4)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.lists(entry, max_size=12), st.integers(0, 11))
def test_what_is_found_is_what_decoding_all_of_it_says(entries: list[Any], at: int) -> None:
    usual = [{"a": n, "step": n} for n in range(900)]
    whole = [*entries[:at], *usual, *entries[at:]]
    wanted: dict[str, Any] = {}
    for each in whole:
        wanted.update(each)
    assert last_values(encode(whole)) in (None, wanted)


numbers = st.one_of(st.integers(-3, 9), st.floats(), st.booleans(), st.none(), st.just(10**400))


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.lists(st.fixed_dictionaries({}, optional={"step": numbers, "y": numbers}), max_size=6))
def test_a_plain_curve_is_the_same_as_one_that_is_read_value_by_value(entries: list[Any]) -> None:
    plain = _plain_curve(entries, "step", "y")
    if plain is not None:
        slow = _curve([*entries, {"y": "no number"}], "step", "y", to_number)
        assert repr(plain) == repr(slow)
