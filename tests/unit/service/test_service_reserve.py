from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.core.box_rules import BoxRules, Limits
from stoker.core.node import NodeFacts
from stoker.core.slot import Slot
from stoker.errors import ConflictError, NotFoundError
from stoker.service.gpus import read_gpus
from stoker.service.reserve import reserve
from stoker.service.status import status
from stoker.wire import GpusQuery, Reserve
from unit.engine.engine_harness import MakeHarness
from unit.engine.turn_box import Box, FakeBoard, Member

HOUR_S = 3600.0


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path, gpus=2)
    yield box
    box.close()


@pytest.fixture
def ann(box: Box) -> Member:
    return box.add("ann", 401001)


def refusal(member: Member, gpus: int, for_s: float, after_s: float = 0.0) -> str:
    with pytest.raises(ConflictError) as raised:
        member.reserve(gpus, for_s, after_s)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_reservation_names_its_gpus_and_is_listed_until_it_is_over(box: Box, ann: Member) -> None:
    made = ann.reserve(2, for_s=10)
    assert (made.id, made.gpus, made.held, made.waits_for) == (1, 2, ["0", "1"], None)
    assert made.end_at - made.begin_at == 10
    assert ann.reservations() == [made]
    box.run(10, {})
    assert ann.reservations() == []


def test_no_id_is_given_twice(box: Box, ann: Member) -> None:
    assert ann.reserve(1, for_s=10).id == 1
    assert ann.end_reservation(1).id == 1
    ann.crash(supervisor_too=False)
    assert ann.reserve(1, for_s=10).id == 2


def test_what_does_not_exist_cannot_be_ended(box: Box, ann: Member) -> None:
    with pytest.raises(NotFoundError, match="no reservation 7: there is none"):
        ann.end_reservation(7)
    ann.reserve(1, for_s=10)
    ann.reserve(1, for_s=10)
    with pytest.raises(NotFoundError, match="no reservation 7: there is 1, 2"):
        ann.end_reservation(7)


def test_more_gpus_than_the_queue_has_are_refused(box: Box, ann: Member) -> None:
    assert refusal(ann, 3, HOUR_S) == (
        "cannot reserve 3 GPUs: this queue has 2 GPUs of this machine"
    )
    ann.reserve(1, HOUR_S)
    assert refusal(ann, 2, HOUR_S, after_s=HOUR_S / 2) == (
        "cannot reserve 2 more: 1 GPU is reserved at that time already (stoker reserve), and this queue"
        " has 2 GPUs of this machine"
    )
    assert ann.reserve(2, HOUR_S, after_s=HOUR_S).id == 2


def test_a_removed_gpu_cannot_be_reserved(box: Box, ann: Member) -> None:
    ann.gpus("remove", "1")
    assert "this queue has 1 GPU of this machine" in refusal(ann, 2, HOUR_S)


def test_more_gpus_than_the_rules_allow_are_refused(box: Box, ann: Member) -> None:
    box.file.rules = BoxRules(limits=Limits(gpus=1))
    assert "cannot reserve 2 GPUs: you may hold 1 GPU at once (" in refusal(ann, 2, HOUR_S)
    assert ann.reserve(1, HOUR_S).held == ["0"]


def test_without_a_rule_a_reservation_lasts_a_day_at_most(box: Box, ann: Member) -> None:
    assert refusal(ann, 1, 25 * HOUR_S) == "a reservation may last 1d at most"
    assert ann.reserve(1, 24 * HOUR_S).id == 1


def test_the_rules_set_the_longest_reservation(box: Box, ann: Member) -> None:
    box.file.rules = BoxRules(limits=Limits(reserve_s=2 * HOUR_S))
    assert "a reservation may last 2h at most (" in refusal(ann, 1, 3 * HOUR_S)
    ann.reserve(1, 2 * HOUR_S)
    assert "without a gap: 2h at most" in refusal(ann, 1, HOUR_S, after_s=2 * HOUR_S)
    assert "that is 3h without a gap" in refusal(ann, 1, 2 * HOUR_S, after_s=HOUR_S)
    assert ann.reserve(1, HOUR_S, after_s=2 * HOUR_S + 60).id == 2
    box.file.rules = BoxRules(limits=Limits(reserve_s=0.0))
    assert "the rules of this machine allow no reservations" in refusal(ann, 1, HOUR_S)


def test_a_queue_without_gpus_says_so(tmp_path: Path) -> None:
    box = Box(tmp_path, gpus=0)
    assert refusal(box.add("ann", 401001), 1, HOUR_S) == "no GPU found"
    box.close()


def test_status_and_gpus_show_what_is_reserved(box: Box, ann: Member) -> None:
    made = ann.reserve(1, for_s=10)
    assert [slot.reserved_until for slot in status(ann.context).slots] == [made.end_at, None]
    found = ann.run(read_gpus(ann.context, GpusQuery()))
    assert [gpu.reserved_until for gpu in found] == [made.end_at, None]


def test_gpus_of_other_nodes_are_not_reserved(make_harness: MakeHarness) -> None:
    far = Slot(1, ("0",), ("GPU-far",), "h1")
    own = Slot(0, ("0",), ("GPU-own",), "h0")
    harness = make_harness(
        gpus=(own, far),
        nodes=(NodeFacts("h0"), NodeFacts("h1")),
        board=FakeBoard(Box(Path(), gpus=0), 401001, "ann"),
    )
    order = Reserve(gpus=2, for_s=10.0)
    with pytest.raises(ConflictError, match="this queue has 1 GPU of this machine"):
        harness.run(reserve(harness.context, order))
    made = harness.run(reserve(harness.context, Reserve(gpus=1, for_s=10.0)))
    assert made.held == ["0"]
    assert harness.executor.leased == {"GPU-own"}
