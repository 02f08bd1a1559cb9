"""What a function or a Task returns becomes metrics of its run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest

from stoker.task.base import run_function


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STOKER_RUN_DIR", str(tmp_path))
    return tmp_path


def reported(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [
        {key: value for key, value in json.loads(line).items() if key != "time"} for line in lines
    ]


@pytest.mark.parametrize(
    ("value", "metrics"),
    [
        (0.5, {"value": 0.5}),
        (3, {"value": 3}),
        (True, {"value": True}),
        ("best", {"value": "best"}),
        (numpy.float32(0.25), {"value": 0.25}),
        (numpy.array(7), {"value": 7}),
        (float("nan"), {"value": "nan"}),
        ({"acc": 1, "step": 4}, {"acc": 1, "step": 4}),
    ],
)
def test_a_number_is_the_metric_value_and_a_dictionary_its_entries(
    folder: Path, value: Any, metrics: dict[str, Any]
) -> None:
    run_function(lambda: value, {})

    assert reported(folder) == [metrics]


def test_none_is_no_metric(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_function(lambda: None, {})

    assert reported(folder) == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("value", [(1, 2), [0.5], object(), numpy.zeros(3)])
def test_other_values_are_told_in_the_log(
    folder: Path, value: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    run_function(lambda: value, {})

    assert reported(folder) == []
    told = capfd.readouterr().err
    assert told.startswith(f"stoker: the returned {type(value).__name__} is not a metric: return a")
