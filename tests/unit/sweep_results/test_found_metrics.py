"""Metrics in files of training libraries are found in a run's folder, whatever else is there."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path

import pytest

from stoker.sweep_results.collect import read_run, read_steps
from stoker.sweep_results.curves import read_curve
from stoker.sweep_results.metric_files.found import read_found_steps
from stoker.sweep_results.metric_files.tensorboard import read_scalars

LIGHTNING = """epoch,step,train_loss,val_acc
0,49,0.5,
0,49,,0.8
1,99,0.25,
1,99,,0.9
"""


def varint(number: int) -> bytes:
    rest = number >> 7
    return bytes([number & 127 | (128 if rest else 0)]) + (varint(rest) if rest else b"")


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def simple(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value)


def tensor(tag: str, value: float) -> bytes:
    """Make a value as TensorFlow 2 writes it."""
    content = varint(1 << 3) + varint(1) + field(4, struct.pack("<f", value))
    return field(1, tag.encode()) + field(8, content)


def record(step: int, *values: bytes) -> bytes:
    event = varint(1 << 3 | 1) + struct.pack("<d", 1.7e9) + varint(2 << 3) + varint(step)
    event += field(5, b"".join(field(1, value) for value in values))
    return struct.pack("<Q", len(event)) + b"crc0" + event + b"crc1"


def test_lightnings_csv_is_read(tmp_path: Path) -> None:
    for version, loss in ((0, "9"), (1, "0.25")):
        folder = tmp_path / "lightning_logs" / f"version_{version}"
        folder.mkdir(parents=True)
        (folder / "metrics.csv").write_text(LIGHTNING.replace("0.25", loss))
        os.utime(folder / "metrics.csv", (version, version))

    run = read_run(str(tmp_path))

    assert run.metrics == {"epoch": 1, "step": 99, "train_loss": 0.25, "val_acc": 0.9}
    assert read_curve(str(tmp_path), "step", "val_acc") == ([49.0, 99.0], [0.8, 0.9])


def test_the_last_line_of_a_csv_counts_once_it_has_all_columns(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss\n1,0.5\n2,0.25")
    assert read_steps(str(tmp_path))[-1] == {"step": 2, "loss": 0.25}

    (tmp_path / "metrics.csv").write_text("step,loss\n1,0.5\n2")
    assert read_steps(str(tmp_path))[-1] == {"step": 1, "loss": 0.5}


def test_the_newest_trainer_state_is_read(tmp_path: Path) -> None:
    for number in (10, 20):
        folder = tmp_path / f"checkpoint-{number}"
        folder.mkdir()
        history = [{"loss": 1 / step, "step": step} for step in range(10, number + 1, 10)]
        state = {"log_history": [*history, {"eval_loss": float("nan"), "step": number}, 7]}
        (folder / "trainer_state.json").write_text(json.dumps(state))
        os.utime(folder / "trainer_state.json", (number, number))

    assert read_curve(str(tmp_path), "step", "loss") == ([10.0, 20.0], [0.1, 0.05])
    metrics = read_run(str(tmp_path)).metrics
    assert metrics["loss"] == 0.05
    assert metrics["eval_loss"] != metrics["eval_loss"]


def test_the_newest_file_is_found_although_the_clock_was_set_back(tmp_path: Path) -> None:
    now = time.time()
    csv, states, events = (tmp_path / kind for kind in ("csv", "states", "events"))
    # Attempts of a run: the second was written after the clock was set back by a day.
    for attempt, written_at in ((9, now + 80_000), (10, now - 6_400)):
        for path, data in (
            (csv / f"version_{attempt}" / "metrics.csv", b"step,loss\n1,%d" % attempt),
            (
                states / f"checkpoint-{100 - attempt}" / "trainer_state.json",
                b'{"log_history": [{"step": 1, "loss": %d}]}' % attempt,
            ),
            (events / f"events.out.tfevents.{attempt}", record(1, simple("loss", attempt))),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.utime(path, (written_at, written_at))

    for folder in (csv, states, events):
        assert read_run(str(folder)).metrics["loss"] == 10, folder.name
    # Lightning's folders tell the order also when the clock has caught up.
    os.utime(csv / "version_9" / "metrics.csv", (now - 100, now - 100))
    assert read_run(str(csv)).metrics["loss"] == 10
    (csv / "metrics.csv").write_text("step,loss\n1,0.5")
    assert read_run(str(csv)).metrics["loss"] == 0.5, "the newest of all places"


def test_event_files_of_tensorboard_are_read_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    first = record(1, simple("loss", 0.5), tensor("acc", 0.25)) + record(300, simple("loss", 0.25))
    (folder / "events.out.tfevents.1.host").write_bytes(first)
    (folder / "events.out.tfevents.2.host").write_bytes(record(301, simple("loss", 0.125)))

    assert read_found_steps(str(tmp_path)) == [
        {"step": 1, "loss": 0.5, "acc": 0.25},
        {"step": 300, "loss": 0.25},
        {"step": 301, "loss": 0.125},
    ]


def test_what_a_run_reports_itself_goes_before_files(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss\n1,5\n")
    assert read_steps(str(tmp_path)) == [{"step": 1, "loss": 5}]

    (tmp_path / "metrics.jsonl").write_text('{"step":2,"loss":3}\n')

    assert read_steps(str(tmp_path)) == [{"step": 2, "loss": 3}]
    assert read_run(str(tmp_path)).metrics == {"step": 2, "loss": 3}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.csv", b"\0\xff,,\n\n,,1,2,3\n"),
        ("metrics.csv", b"a\n" + b'"' * 200_000 + b"\n"),
        ("metrics.csv", b"loss,step\n0.5"),
        ("trainer_state.json", b"[" * 100_000),
        ("trainer_state.json", b'{"log_history": {"a": 1}}'),
        ("trainer_state.json", b"\xff"),
        ("events.out.tfevents.1", b"\xff" * 100),
        ("events.out.tfevents.1", struct.pack("<Q", 5) + b"crc0" + b"\xff" * 30),
        ("events.out.tfevents.1", record(1, field(1, b"\xff") + b"\x13")),
        ("events.out.tfevents.1", record(1, simple("step", 1.0))),
    ],
)
def test_damaged_files_have_no_metrics(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)

    run = read_run(str(tmp_path))

    assert (run.metrics, run.problem) == ({}, None)


def test_a_damaged_file_leaves_the_next_kind(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("")
    (tmp_path / "trainer_state.json").write_text("{")
    (tmp_path / "events.out.tfevents.1").write_bytes(record(1, simple("a", 1.0)))

    assert read_found_steps(str(tmp_path)) == [{"step": 1, "a": 1.0}]


def test_an_event_file_that_is_cut_off_anywhere_gives_what_is_whole() -> None:
    first = record(1, simple("loss", 0.5))
    whole = first + record(2, simple("loss", 0.25))

    for length in range(len(whole) + 1):
        used, found, is_damaged = read_scalars(whole[:length])
        count = 0 if length < len(first) else 1 if length < len(whole) else 2
        assert (used, len(found)) == ((0, len(first), len(whole))[count], count)
        assert not is_damaged


def test_links_fifos_and_deep_folders_are_left_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "metrics.csv").write_text("loss\n1\n")
    run = tmp_path / "run"
    run.mkdir()
    (run / "link").symlink_to(outside)
    (run / "metrics.csv").symlink_to(outside / "metrics.csv")
    os.mkfifo(run / "trainer_state.json")
    deep = run.joinpath(*"abcdefghij")
    deep.mkdir(parents=True)
    (deep / "metrics.csv").write_text("loss\n1\n")

    assert read_found_steps(str(run)) == []
