from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.errors import NotFoundError
from stoker.sweep_results.collect import find_root


@pytest.mark.parametrize(
    "name",
    ["train", "results/train", "./results/train", "results/../results/train/", "{}/results/train"],
)
def test_every_spelling_of_a_folder_is_the_folder_that_the_queue_knows(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "results" / "train").mkdir(parents=True)

    assert find_root(name.format(tmp_path), str(tmp_path)) == f"{tmp_path}/results/train"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=f"there is no folder {tmp_path}{os.sep}results/none"):
        find_root("none", str(tmp_path))
