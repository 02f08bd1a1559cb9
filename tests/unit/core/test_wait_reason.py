from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.wait_reason import Occupant, SlotView, waits_for_slots


@pytest.mark.parametrize(
    ("slot", "words"),
    [
        (SlotView(label="0"), "GPU 0 free"),
        (SlotView(label="0", drained="drained"), "GPU 0 drained"),
        (SlotView(label="0", closed="lost"), "GPU 0 lost"),
        (SlotView(label="0", waits_for="held by ann"), "GPU 0 held by ann"),
        (SlotView(label="0", kept_for=3), "GPU 0 kept for job 3, which is ahead"),
        (
            SlotView(label="0", barred="is not for its project", drained="x"),
            "GPU 0 is not for its project",
        ),
        (
            SlotView(
                label="0+1", occupant=Occupant(job=12, name="train", since_s=4200, limit_in_s=3000)
            ),
            "GPU 0+1 held by job 12 (train, 1h 10m, time limit in 50m 00s)",
        ),
        (
            SlotView(label="0", occupant=Occupant(job=1, name=None, since_s=1, paused=True)),
            "GPU 0 held by job 1 (1.0s, paused)",
        ),
    ],
)
def test_a_slot_is_told_by_what_decides_about_it(slot: SlotView, words: str) -> None:
    assert waits_for_slots(1, [slot]) == f"waits for 1 GPU: {words}"


def test_very_many_slots_are_cut() -> None:
    slots = [SlotView(label=str(number), drained="drained") for number in range(20)]

    text = waits_for_slots(2, slots)

    assert text.startswith("waits for 2 GPUs: GPU 0 drained, ")
    assert text.endswith("GPU 7 drained, and 12 more")


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_an_explanation_is_one_line(since_s: float, limit_in_s: float) -> None:
    occupant = Occupant(job=1, name="n", since_s=since_s, limit_in_s=limit_in_s)

    assert "\n" not in waits_for_slots(1, [SlotView(label="0", occupant=occupant)])
