"""What `wandb.log` has recorded offline is read without wandb."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from stoker.sweep_results.collect import read_run
from stoker.sweep_results.curves import read_curve
from stoker.sweep_results.metric_files.wandb import WandbFile
from unit.sweep_results.wandb_made import BLOCK, HISTORY, OUTPUT, SUMMARY, log_file, record


def logged(step: int, **values: object) -> bytes:
    return record(HISTORY, {"_step": step, "_runtime": 1.5, **values})


def run_file(folder: Path, name: str = "abc") -> Path:
    path = folder / "wandb" / f"offline-run-{name}" / f"run-{name}.wandb"
    path.parent.mkdir(parents=True)
    return path


def test_what_was_logged_are_the_metrics_of_a_run(tmp_path: Path) -> None:
    steps = [logged(step, val_acc=step / 10) for step in range(3)]
    run_file(tmp_path).write_bytes(log_file(record(OUTPUT, {"x": 1}), *steps))

    assert read_run(str(tmp_path)).metrics == {"step": 2, "val_acc": 0.2}
    assert read_curve(str(tmp_path), "step", "val_acc") == ([0.0, 1.0, 2.0], [0.0, 0.1, 0.2])


def test_the_summary_counts_where_the_script_has_set_it(tmp_path: Path) -> None:
    path = run_file(tmp_path)
    made_by_wandb = record(SUMMARY, {"_step": 1, "loss": 0.5})
    path.write_bytes(log_file(logged(1, loss=0.5), made_by_wandb, record(SUMMARY, {"best": 0.25})))

    assert WandbFile(str(path)).read(is_last=True).entries == [
        {"step": 1, "loss": 0.5},
        {"best": 0.25},
    ]


def test_nested_names_get_dots_and_texts_and_lists_are_left_out(tmp_path: Path) -> None:
    path = run_file(tmp_path)
    values = {"loss.train": 1, "eval": {"acc": 0.5, "name": "x"}, "image": {"_type": "image-file"}}
    path.write_bytes(log_file(record(HISTORY, {"_step": 0, **values, "list": [1, 2]})))

    assert WandbFile(str(path)).read(is_last=True).entries == [
        {"step": 0, "loss.train": 1, "eval.acc": 0.5}
    ]


def test_values_that_are_not_finite_are_read(tmp_path: Path) -> None:
    path = run_file(tmp_path)
    path.write_bytes(log_file(logged(0, a=math.nan, b=math.inf, c=-math.inf)))

    [entry] = WandbFile(str(path)).read(is_last=True).entries

    assert math.isnan(entry["a"])
    assert (entry["b"], entry["c"]) == (math.inf, -math.inf)


def test_records_go_across_the_ends_of_blocks(tmp_path: Path) -> None:
    path = run_file(tmp_path)
    big = record(OUTPUT, {"text": "x" * (2 * BLOCK)})
    # Lengths that leave between 0 and 8 bytes of the first block.
    for rest in range(9):
        filler = record(OUTPUT, {"t": "y" * (BLOCK - 200)})
        filler = record(OUTPUT, {"t": "y" * (BLOCK - 200 + BLOCK - 14 - rest - len(filler))})
        path.write_bytes(log_file(filler, logged(1, loss=1), big, logged(2, loss=2)))

        entries = WandbFile(str(path)).read(is_last=True).entries

        assert [entry["loss"] for entry in entries] == [1, 2]


def test_a_file_that_grows_is_read_on(tmp_path: Path) -> None:
    path = run_file(tmp_path)
    whole = log_file(logged(0, loss=3), record(OUTPUT, {"t": "z" * BLOCK}), logged(1, loss=2))
    reader, found = WandbFile(str(path)), []

    for end in [0, 3, 7, 20, 500, BLOCK - 1, BLOCK, BLOCK + 9, len(whole) - 1, len(whole)]:
        path.write_bytes(whole[:end])
        found += reader.read(is_last=False).entries

    assert [entry["loss"] for entry in found] == [3, 2]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b":W&",
        b"no file of W&B at all",
        log_file(b"\xff" * 40),
        log_file(record(HISTORY, {"_step": 0}) + b"\x13"),
        log_file()[:7] + b"\xff" * 400_000,
    ],
)
def test_damaged_files_have_no_metrics(tmp_path: Path, content: bytes) -> None:
    run_file(tmp_path).write_bytes(content)

    run = read_run(str(tmp_path))

    assert (run.metrics, run.problem) == ({}, None)
