from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.wire import Base64, Bytes, Submission, from_wire, to_wire

steady = settings(derandomize=True, deadline=None)


@steady
@given(st.binary(max_size=100))
def test_any_bytes_survive_the_way_there_and_back(data: bytes) -> None:
    sent = msgspec.json.encode(to_wire(data))

    assert from_wire(msgspec.json.decode(sent, type=Bytes)) == data


@steady
@given(st.text(max_size=50))
def test_text_goes_as_text(text: str) -> None:
    assert to_wire(text.encode()) == text


def test_what_is_no_text_goes_as_base64() -> None:
    assert to_wire(b"\xff") == Base64("/w==")


@pytest.mark.parametrize("text", ["*", "/w=", "/w== ", "é", "/w==\n"])
def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        from_wire(Base64(text))


@pytest.mark.parametrize(
    "wrong",
    [
        '"request_id": "short"',
        '"jobs": []',
        '"gpus": -1',
        '"gpus": 2000',
        '"priority": 10000000',
        '"timeout_s": 0',
        '"timeout_s": 1e999',
        '"retries": -1',
        '"name": ""',
        '"cwd": {"b64": "Lw==", "more": 1}',
        '"surprise": 1',
    ],
)
def test_a_submission_out_of_bounds_is_refused(wrong: str) -> None:
    good = {"request_id": '"12345678"', "jobs": '[{"command": "a"}]', "cwd": '"/"'}
    name = wrong.split(":")[0].strip('"')
    fields = [f'"{key}": {value}' for key, value in good.items() if key != name]
    text = "{" + ", ".join([*fields, wrong]) + "}"
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Submission)
