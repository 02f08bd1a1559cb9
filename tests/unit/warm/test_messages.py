from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stoker.warm.messages import (
    ForkJob,
    ForkRequest,
    Prepare,
    Ready,
    Unfit,
    decode,
    encode,
)

if TYPE_CHECKING:
    from stoker.warm.messages import Message

NOT_UTF8 = {"NAME": "\udcff"}
REQUEST = ForkRequest(["python", "a.py"], 1, "/a b\n", ["json"])
SAMPLES = [
    Prepare(REQUEST, 600.0, "MARK", ["polars"]),
    ForkJob(REQUEST, ["python", "a.py"], "/", NOT_UTF8, ["TERM"], {}),
    Ready(["json"], [("/a.py", 1, 2)]),
    Unfit('an "import" failed', ["polars"]),
]


@pytest.mark.parametrize("message", SAMPLES)
def test_a_message_is_read_as_it_was_written(message: Message) -> None:
    read = decode(encode(message))
    assert type(read) is type(message)
    assert read == message
