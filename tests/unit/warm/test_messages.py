from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stoker.warm.messages import (
    REPORT_BYTES,
    ForkJob,
    ForkRequest,
    Prepare,
    Ready,
    Unfit,
    decode,
    decode_peak,
    encode,
    encode_peak,
)

if TYPE_CHECKING:
    from stoker.warm.messages import Message

NOT_UTF8 = {"NAME": "\udcff"}
REQUEST = ForkRequest(["python", "a.py"], 1, "/a b\n", ["json"])
SAMPLES = [
    Prepare(REQUEST, 600.0, "MARK", ["polars"]),
    ForkJob(REQUEST, ["python", "a.py"], "/", NOT_UTF8, ["TERM"], {}, "/proc/1/fd/9"),
    Ready(["json"], [("/a.py", 1, 2)]),
    Unfit('an "import" failed', ["polars"]),
]


@pytest.mark.parametrize("message", SAMPLES)
def test_a_message_is_read_as_it_was_written(message: Message) -> None:
    read = decode(encode(message))
    assert type(read) is type(message)
    assert read == message


@pytest.mark.parametrize("peak_bytes", [1, 3 << 30, (1 << 50) - 1])
def test_reported_memory_is_read_as_it_was_written(peak_bytes: int) -> None:
    assert decode_peak(encode_peak(peak_bytes).ljust(REPORT_BYTES, b"\0")) == peak_bytes


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 24,
        b"-5",
        b"nan",
        b"1e9",
        b"1.5",
        b"9" * 24,
        b"9" * 99,
        b"1 2",
        b"\xff",
        b"0x10",
    ],
)
def test_a_report_that_is_no_amount_of_memory_counts_as_none(content: bytes) -> None:
    assert decode_peak(content) == 0


@pytest.mark.parametrize("peak_bytes", [0, -1, 1 << 50])
def test_an_amount_that_cannot_be_is_not_reported(peak_bytes: int) -> None:
    assert encode_peak(peak_bytes) == b""
