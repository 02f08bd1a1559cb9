from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.slot import Slot, group_by_gpu
from stoker.errors import StokerError, UsageError
from stoker.gpus import slot_grammar as slots_module
from stoker.gpus.driver import Gpu
from stoker.gpus.slot_grammar import default_slots, parse_slots, visible_gpus

FOUR = tuple(Gpu(i, f"GPU-{i}a{i}b-0000", "A100", 8 << 30, is_mig=False) for i in range(4))
SPLIT = (
    Gpu(0, "MIG-1111", "A100 1g", 1 << 30, is_mig=True),
    Gpu(0, "MIG-2222", "A100 1g", 1 << 30, is_mig=True),
    Gpu(1, "GPU-3333", "A100", 8 << 30, is_mig=False),
)
names = st.from_regex(r"[A-Za-z][A-Za-z0-9_/-]{0,8}", fullmatch=True).filter(lambda n: n != "all")


def labels(text: str, known: tuple[Gpu, ...] | None = FOUR, visible: str | None = None) -> str:
    return " ".join(slot.label for slot in parse_slots(text, known, visible))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0,1,2", "0 1 2"),
        ("0+1,2+3", "0+1 2+3"),
        ("0,0,1,1", "0 0 1 1"),
        ("0-3", "0 1 2 3"),
        ("0-1,3", "0 1 3"),
        ("0-1+3", "0+1+3"),
        ("0-1+2-3", "0+1+2+3"),
        (" 0 , 1 ,, ", "0 1"),
        ("0 1 2", "0 1 2"),
        ("0 + 1, 2", "0+1 2"),
        ("0+,1", "0 1"),
        ("00,01", "0 1"),
        ("-1", "-1"),
        ("GPU-0a0b-0000,MIG-x/1/0,gpu-room", "GPU-0a0b-0000 MIG-x/1/0 gpu-room"),
        ("all", "0 1 2 3"),
        ("3,all", "3 0 1 2 3"),
    ],
)
def test_lists_of_gpus_are_parsed(text: str, expected: str) -> None:
    assert labels(text) == expected


def test_a_slot_shows_its_gpus_to_cuda_and_is_leased_by_their_uuids() -> None:
    (slot,) = parse_slots("1+0", FOUR, None)

    assert slot == Slot(0, ("1", "0"), ("GPU-1a1b-0000", "GPU-0a0b-0000"))
    assert slot.visible == "1,0"
    assert slot.label == "1+0"


def test_the_start_of_a_uuid_is_leased_by_the_whole() -> None:
    (slot,) = parse_slots("GPU-2a", FOUR, None)

    assert slot == Slot(0, ("GPU-2a",), ("GPU-2a2b-0000",), cards=("2",))


def test_without_nvml_any_name_is_its_own_key() -> None:
    assert [slot.keys for slot in parse_slots("9,GPU-2a", None, None)] == [("9",), ("GPU-2a",)]


@pytest.mark.parametrize("known", [None, FOUR])
@pytest.mark.parametrize("name", ["-1", "NoDevFiles"])
def test_a_name_that_means_no_gpu_needs_no_lease(name: str, known: tuple[Gpu, ...] | None) -> None:
    slots = parse_slots(f"{name},{name}", known, None)

    assert [(slot.visible, slot.keys) for slot in slots] == [(name, ()), (name, ())]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9", "GPU 9 does not exist: this machine has 0-3"),
        ("0,2-7", "GPU 4 does not exist: this machine has 0-3"),
        ("3-0", "GPU range 3-0 is reversed: write 0-3"),
        ("0-999999", "GPU range 0-999999 is too long: at most 1024 GPUs"),
        (" , +", "no GPU given: pass --gpus 0,1 or --gpus all"),
        ("GPU-", "GPU- matches several GPUs: give more of the UUID"),
        ("0+0", "GPU 0 is twice in one slot, 0+0; for two jobs that share it write 0,0"),
        ("1+GPU-1a", "GPU 1 is twice in one slot, 1+GPU-1a; for two jobs that share it write 1,1"),
    ],
)
def test_invalid_lists_are_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_slots(text, FOUR, None)
    assert str(caught.value) == message


def test_an_error_names_the_gaps_in_the_numbers() -> None:
    with pytest.raises(UsageError, match=r"this machine has 0-1,3$"):
        parse_slots("2", (*FOUR[:2], FOUR[3]), None)


def test_a_split_gpu_is_named_by_its_instances() -> None:
    with pytest.raises(UsageError, match=r"GPU 0 is split by MIG: .* MIG-1111,MIG-2222"):
        parse_slots("0", SPLIT, None)
    assert labels("all", SPLIT) == "MIG-1111 MIG-2222 1"
    assert [slot.keys for slot in parse_slots("MIG-2", SPLIT, None)] == [("MIG-2222",)]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, "0 1 2 3"),
        ("2,0", "2 0"),
        ("GPU-3a3b-0000,1", "3 1"),
        ("GPU-3", "3"),
        ("1,1", "1"),
        ("1,-1,2", "1"),
        ("1,17,2", "1"),
        ("GPU-,2", ""),
        ("", ""),
        ("-1", ""),
        ("NoDevFiles", ""),
    ],
)
def test_inherited_visibility_is_read_as_cuda_reads_it(visible: str | None, expected: str) -> None:
    assert " ".join(gpu.label for gpu in visible_gpus(FOUR, visible)) == expected


def test_all_without_nvml_is_what_the_environment_names() -> None:
    assert labels("all", None, "5, GPU-x") == "5 GPU-x"


def test_all_of_nothing_says_what_to_pass() -> None:
    with pytest.raises(StokerError, match=r"no GPU found \(NVML: lists none\); name them: --gpus"):
        parse_slots("all", (), None)
    with pytest.raises(StokerError, match="CUDA_VISIBLE_DEVICES='-1' hides every GPU"):
        parse_slots("all", FOUR, "-1")


def test_several_jobs_per_gpu_spread_before_they_share() -> None:
    slots = parse_slots("0,1,2", FOUR, None, jobs_per_gpu=2)

    assert [slot.label for slot in slots] == ["0", "1", "2", "0", "1", "2"]
    assert [slot.index for slot in slots] == [0, 1, 2, 3, 4, 5]


def test_no_job_per_gpu_is_refused() -> None:
    with pytest.raises(UsageError, match="-j 0: a GPU takes at least 1 job"):
        parse_slots("0", FOUR, None, jobs_per_gpu=0)


@given(st.text(), st.sampled_from([None, FOUR, SPLIT]), st.none() | st.text())
def test_any_text_gives_slots_or_one_clear_line(
    text: str, known: tuple[Gpu, ...] | None, visible: str | None
) -> None:
    complaint = ""
    slots: tuple[Slot, ...] = ()
    try:
        slots = parse_slots(text, known, visible)
    except StokerError as error:
        complaint = str(error)

    assert bool(slots) != bool(complaint)
    assert "\n" not in complaint
    assert [slot.index for slot in slots] == list(range(len(slots)))
    assert all(len(slot.keys) <= len(slot.gpus) > 0 for slot in slots)
    assert all(len(set(slot.keys)) == len(slot.keys) for slot in slots)


@given(st.lists(st.lists(names, min_size=1, max_size=4, unique=True), min_size=1, max_size=4))
def test_names_pass_as_they_are(groups: list[list[str]]) -> None:
    text = ",".join("+".join(group) for group in groups)

    assert [list(slot.gpus) for slot in parse_slots(text, None, None)] == groups


@given(st.lists(st.sampled_from(["0", "3", "GPU-1a1b-0000", "GPU-2", "7", "x", ""]), max_size=6))
def test_all_never_exceeds_what_is_visible(entries: list[str]) -> None:
    visible = visible_gpus(FOUR, ",".join(entries))

    assert len(visible) <= len(entries)
    assert all(
        any(entry == gpu.label or (entry and gpu.uuid.startswith(entry)) for entry in entries)
        for gpu in visible
    )
    if visible:
        slots = default_slots(FOUR, ",".join(entries))
        assert [slot.keys for slot in slots] == [(gpu.uuid,) for gpu in visible]


@given(st.integers(1, 5), st.integers(1, 4))
def test_each_gpu_gets_as_many_slots_as_jobs_may_share_it(jobs: int, count: int) -> None:
    slots = default_slots(FOUR[:count], None, jobs)

    assert len(slots) == jobs * count
    assert all(slot.label == str(slot.index % count) for slot in slots)


def test_the_default_is_every_visible_gpu_as_often_as_jobs_may_share_it() -> None:
    slots = default_slots(FOUR, "2,1", 2)

    assert [slot.label for slot in slots] == ["2", "1", "2", "1"]
    assert slots[0].keys == (FOUR[2].uuid,)


def test_by_default_too_a_gpu_takes_at_least_one_job() -> None:
    with pytest.raises(UsageError, match="-j 0: a GPU takes at least 1 job"):
        default_slots(FOUR, None, 0)


def test_without_any_gpu_the_default_says_why_and_what_to_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slots_module, "why_unavailable", lambda: "Driver Not Loaded")

    with pytest.raises(StokerError) as caught:
        default_slots(None, None)

    assert str(caught.value) == (
        "no GPU found (NVML: Driver Not Loaded); name them: --gpus 0,1"
        " (any names; each becomes CUDA_VISIBLE_DEVICES)"
    )


def test_hidden_gpus_are_not_taken_by_default() -> None:
    with pytest.raises(StokerError, match="CUDA_VISIBLE_DEVICES='' hides every GPU"):
        default_slots(FOUR, "")


@given(st.lists(st.lists(st.sampled_from("abcdef"), unique=True, max_size=3), max_size=8))
def test_groups_have_no_gpu_in_common_and_lose_no_slot(keys: list[list[str]]) -> None:
    slots = [Slot(index, tuple(names), tuple(names)) for index, names in enumerate(keys)]

    groups = group_by_gpu(slots)

    assert sorted(slot.index for group in groups for slot in group) == list(range(len(slots)))
    used = [{key for slot in group for key in slot.keys} for group in groups]
    assert sum(map(len, used)) == len(set().union(*used))
    # A group is no larger than it must be: each slot shares a GPU with another of its group.
    assert all(
        len(group) == 1 or any(set(slot.keys) & set(o.keys) for o in group if o is not slot)
        for group in groups
        for slot in group
    )


@pytest.mark.parametrize(
    ("text", "gpus", "visible", "numbers"),
    [
        ("0,2", FOUR, None, ["0", "2"]),
        ("GPU-2a2b-0000+0", FOUR, None, ["2 0"]),
        ("GPU-3,1", FOUR, None, ["3", "1"]),
        ("all", FOUR, "GPU-2a2b-0000,1", ["2", "1"]),
        ("all", SPLIT, None, ["0", "0", "1"]),
        ("0,a-name", None, None, ["0", "a-name"]),
    ],
)
def test_a_slot_knows_the_numbers_of_its_cards_however_it_is_named(
    text: str, gpus: tuple[Gpu, ...] | None, visible: str | None, numbers: list[str]
) -> None:
    assert [" ".join(slot.numbers) for slot in parse_slots(text, gpus, visible)] == numbers
