"""A job's files cannot crash their readers: values nested too deep, and numbers out of range."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest

from stoker.sweep_results.collect import read_run
from stoker.sweep_results.curves import read_curve, read_thin_curves
from stoker.tuning.metric_tail import MetricTail
from unit.sweep_results.test_found_metrics import field, simple, varint
from unit.sweep_results.test_found_metrics import record as event
from unit.sweep_results.wandb_made import HISTORY, log_file, record

DEEP = 3000  # deeper than the stack of Python
HUGE = b"1" + b"0" * 400  # beyond all floats


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


def wandb_file(depth: int) -> bytes:
    item = field(1, field(1, b"deep") + field(16, nested(depth)))
    return log_file(field(HISTORY, item), record(HISTORY, {"_step": 1, "loss": 2}))


def event_file() -> bytes:
    """An event, and one whose tensor has infinity as its type."""
    endless = varint(1 << 3 | 5) + struct.pack("<f", math.inf)
    tensor = field(1, b"loss") + field(8, endless)
    return event(1, simple("loss", 2.0)) + event(2, tensor)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run-a.wandb", wandb_file(500)),
        ("run-a.wandb", wandb_file(DEEP)),
        ("events.out.tfevents.1", event_file()),
        ("metrics.jsonl", nested(DEEP) + b'\n{"step": 1, "loss": 2}\n'),
        ("metrics.jsonl", b'{"step": %s, "loss": 1}\n{"step": 1, "loss": 2}\n' % HUGE),
        ("metrics.jsonl", b'{"step": 0, "loss": %s}\n{"step": 1, "loss": 2}\n' % HUGE),
    ],
    ids=["wandb deep", "wandb deeper", "tensorboard", "deep", "huge step", "huge value"],
)
def test_what_cannot_be_read_leaves_the_rest(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    folder = str(tmp_path)

    assert read_run(folder).metrics["loss"] == 2
    assert read_curve(folder, "step", "loss") == ([1.0], [2.0])
    assert MetricTail(folder, "loss").read(is_last=True).values[-1] == 2.0


@pytest.mark.parametrize("name", ["params.json", "metrics.json"])
def test_a_file_that_is_nested_too_deep_is_a_problem_of_its_run(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(nested(DEEP))

    assert "recursion" in str(read_run(str(tmp_path)).problem)


def test_a_metric_of_mlflow_with_the_name_step_is_no_step(tmp_path: Path) -> None:
    metrics = tmp_path / "mlruns" / "0" / "r" / "metrics"
    metrics.mkdir(parents=True)
    (metrics.parent / "meta.yaml").touch()
    (metrics / "step").write_text("0 nan 0\n")
    (metrics / "loss").write_text("0 2 1\n")

    assert read_run(str(tmp_path)).metrics == {"step": 1, "loss": 2}


def test_integers_beyond_all_floats_are_infinite_and_no_times(tmp_path: Path) -> None:
    line = b'{"step": 1, "time": %s, "loss": 2, "big": -%s}\n' % (HUGE, HUGE)
    (tmp_path / "metrics.jsonl").write_bytes(line)

    assert read_run(str(tmp_path)).metrics["big"] == -math.inf
    assert list(read_thin_curves(str(tmp_path), "time", ["loss"], 9)) == []
