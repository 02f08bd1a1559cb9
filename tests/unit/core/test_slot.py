from __future__ import annotations

import pytest

from stoker.core.node import gpus_in, split_label
from stoker.core.slot import Slot


@pytest.mark.parametrize(
    ("gpus", "node", "label"),
    [
        (("0",), "", "0"),
        (("0", "1"), "", "0+1"),
        (("0",), "h1", "h1/0"),
        (("0", "1"), "h1", "h1/0+1"),
    ],
)
def test_a_slot_is_called_by_its_node_and_gpus_and_its_job_sees_the_gpus_alone(
    gpus: tuple[str, ...], node: str, label: str
) -> None:
    slot = Slot(0, gpus, gpus, node)

    assert slot.label == label
    assert slot.visible == ",".join(gpus)
    assert split_label(label) == (node, "+".join(gpus))


def test_a_label_may_name_a_node_alone() -> None:
    assert split_label("h1/") == ("h1", "")


@pytest.mark.parametrize(
    ("labels", "gpus"),
    [
        ("", set()),
        ("h1/", set()),
        ("0,1+2", {"0", "1", "2"}),
        ("h1/0+1,h1/2", {"h1/0", "h1/1", "h1/2"}),
    ],
)
def test_labels_name_gpus_each_with_its_node(labels: str, gpus: set[str]) -> None:
    assert gpus_in(labels) == gpus
