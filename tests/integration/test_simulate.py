"""`stoker simulate`, as a user types it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Stoker


def test_a_sweep_is_simulated_on_four_and_on_eight_gpus(stoker: Stoker) -> None:
    words = ("--runs", "40", "--memory", "5G", "--gpus", "4x24G,8x24G", "--json")
    ended = stoker.end(stoker.start("simulate", *words))
    assert ended.code == 0, ended.err
    four, eight = json.loads(ended.out)
    assert (four["machine"], eight["machine"]) == ("4x24G", "8x24G")
    assert four["policies"]["exclusive"]["makespan_s"] == pytest.approx(6000.0)
    assert (
        eight["policies"]["stoker"]["makespan_s"] < four["policies"]["stoker"]["makespan_s"] < 6000
    )


def test_a_table_is_printed(stoker: Stoker) -> None:
    ended = stoker.end(stoker.start("simulate", "--runs", "8", "--gpus", "2x24G"))
    assert "stoker saves" in ended.out
    assert [line.split()[0] for line in ended.out.splitlines()[2:6]] == [
        "exclusive",
        "gpulimit",
        "stoker",
        "all",
    ]


def test_predictions_for_new_sizes_are_counted(stoker: Stoker) -> None:
    words = ("--sizes", "--seeds", "1", "--gpus", "1x140G")
    ended = stoker.end(stoker.start("simulate", *words))
    assert "with sizes not seen before" in ended.out.splitlines()[-1]
    (row,) = json.loads(stoker.end(stoker.start("simulate", *words, "--json")).out)
    assert row["policies"]["stoker"]["predicted"] > 10


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--gpus", "many"), "write 4x24G"),
        (("--gpus", "4xlots"), "is not an amount of memory"),
        (("--runs", "3", "--memory", "30G", "--gpus", "4x24G"), "more than a GPU of 4x24G has"),
        (("--runs", "0"), "--runs is at least 1"),
        (("--trace", "nothing.csv"), "cannot read nothing.csv"),
    ],
)
def test_wrong_arguments_are_refused(stoker: Stoker, words: tuple[str, ...], says: str) -> None:
    ended = stoker.end(stoker.start("simulate", *words))
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err
