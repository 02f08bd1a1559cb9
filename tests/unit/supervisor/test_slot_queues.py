from __future__ import annotations

import pytest

from stoker.supervisor.slot_queues import AttemptContext, SlotQueue, count_gpus, parse_cpus


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        (b"0-3,8", {0, 1, 2, 3, 8}),
        (b"5", {5}),
        (b"", set()),
        (b"a-b", set()),
        (b"1,,2", set()),
        (b"-1", set()),
    ],
)
def test_a_list_of_cpus_is_parsed_and_anything_else_is_none(text: bytes, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus


def test_a_list_of_cpus_cannot_fill_the_memory() -> None:
    assert len(parse_cpus(b"0-99999999999")) == 65536


def test_an_amd_slot_removes_the_variables_with_which_rocm_would_count_again() -> None:
    env = {b"HIP_VISIBLE_DEVICES": b"3", b"CUDA_VISIBLE_DEVICES": b"3", b"A": b"1"}
    context = AttemptContext(env, "/", "/bin/sh")
    amd = SlotQueue({b"ROCR_VISIBLE_DEVICES": b"0,1"}, [])
    both = SlotQueue({b"ROCR_VISIBLE_DEVICES": b"0", b"CUDA_VISIBLE_DEVICES": b"1"}, [])

    assert context.environment(amd) == {b"ROCR_VISIBLE_DEVICES": b"0,1", b"A": b"1"}
    assert context.environment(both)[b"CUDA_VISIBLE_DEVICES"] == b"1"
    assert [count_gpus(slot.env) for slot in (amd, both, SlotQueue({}, []))] == [2, 2, 1]
