from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stoker.web.changes import describe_change

_ROWS = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(0, 5), "name": st.sampled_from(["", "},{", 'ü"', "x" * 40])}
    )
)


def apply(old: bytes, change: bytes) -> str:
    """What a tab does; the page's own function is tested in a browser."""
    pieces, found = old.decode().split("},{"), json.loads(change)
    if isinstance(found, list):
        start, end, middle = found
        pieces[start:end] = middle
    else:
        for index, piece in found.items():
            pieces[int(index)] = piece
    return "},{".join(pieces)


@given(_ROWS, _ROWS)
def test_a_change_makes_the_new_answer_of_the_old_one(old: Any, new: Any) -> None:
    before, after = (json.dumps({"jobs": rows, "next": None}).encode() for rows in (old, new))
    change = describe_change(before, after)
    assert change is None or json.loads(apply(before, change)) == json.loads(after)


def test_of_a_long_list_only_what_differs_is_sent() -> None:
    rows = [{"id": number, "state": "waiting", "command": "x" * 100} for number in range(50)]
    before = json.dumps(rows, separators=(",", ":")).encode()
    rows[7]["state"] = "running"
    after = json.dumps(rows, separators=(",", ":")).encode()
    change = describe_change(before, after)
    assert change is not None
    assert len(change) < 200
    shorter = json.dumps(rows[1:], separators=(",", ":")).encode()
    change = describe_change(after, shorter)
    assert change is not None
    assert len(change) < 200
    assert apply(after, change) == shorter.decode()
