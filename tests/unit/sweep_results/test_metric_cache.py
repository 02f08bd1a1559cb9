"""Metric files that have not changed are not read again, and the results are the same."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from stoker.sweep_results import metric_cache
from stoker.sweep_results.collect import collect


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(3):
        folder = tmp_path / "s" / str(number)
        folder.mkdir(parents=True)
        (folder / "params.json").write_text(json.dumps({"n": number}))
        (folder / "metrics.csv").write_text(f"step,loss\n1,{number}\n")
    return tmp_path / "s"


@pytest.fixture
def read_folders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the folders whose files were read."""
    names: list[str] = []
    really = metric_cache.read_last_values

    def read(folder: str, metric: str | None) -> dict[str, object]:
        names.append(os.path.basename(folder))
        return really(folder, metric)

    monkeypatch.setattr(metric_cache, "read_last_values", read)
    return names


def losses(root: Path) -> list[object]:
    return [record.metrics.get("loss") for record in collect(str(root))]


def test_only_files_that_have_changed_are_read_again(root: Path, read_folders: list[str]) -> None:
    assert losses(root) == [0, 1, 2]
    assert losses(root) == [0, 1, 2]
    assert read_folders == ["0", "1", "2"]

    (root / "1" / "metrics.csv").write_text("step,loss\n1,1\n2,5\n")
    (root / "2" / "metrics.csv").unlink()

    assert losses(root) == [0, 5, None]
    assert read_folders == ["0", "1", "2", "1"]


def test_another_metric_of_the_sweep_reads_everything_again(
    root: Path, read_folders: list[str]
) -> None:
    losses(root)
    (root / "sweep.json").write_text('{"name": "s", "metric": "loss"}')

    assert losses(root) == [0, 1, 2]
    assert read_folders == ["0", "1", "2"] * 2


@pytest.mark.parametrize("content", [b"", b"\xff", b"\x80", b"\x81\xa4runs\x05"])
def test_a_damaged_cache_is_made_again(root: Path, content: bytes, read_folders: list[str]) -> None:
    (root / ".metrics_cache").write_bytes(content)

    assert losses(root) == [0, 1, 2]
    assert losses(root) == [0, 1, 2]
    assert read_folders == ["0", "1", "2"]


def test_a_folder_that_cannot_be_written_gives_the_same_results(root: Path) -> None:
    (root / ".metrics_cache").mkdir()

    assert losses(root) == [0, 1, 2]
    assert [path.name for path in root.iterdir() if path.suffix == ".new"] == []
