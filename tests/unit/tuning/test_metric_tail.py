"""Values that a run reports, read while it runs."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

import pytest

from stoker.tuning.metric_tail import MetricTail
from unit.tuning.made import report


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "run")


def test_each_read_returns_what_was_added_since_the_last(folder: str) -> None:
    tail = MetricTail(folder, "loss")
    assert tail.read() == (0, [])
    report(folder, step=0, loss=3)
    report(folder, step=1, other=1)
    report(folder, step=2, loss=2.5)
    assert tail.read() == (0, [3.0, 2.5])
    assert tail.read() == (2, [])
    report(folder, step=3, loss="nan")
    kept, [value] = tail.read()
    assert kept == 2
    assert math.isnan(value)


def test_a_line_counts_when_it_is_whole(folder: str) -> None:
    tail = MetricTail(folder, "loss")
    report(folder, loss=1)
    with open(f"{folder}/metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"loss": 2')
    assert tail.read() == (0, [1.0])
    with open(f"{folder}/metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('2}\n{"loss": \n[1]\n"loss"\n{"loss": true}\n{"loss": "high"}\n')
    assert tail.read() == (1, [22.0])


def test_steps_that_a_retry_repeats_replace_the_earlier_ones(folder: str) -> None:
    tail = MetricTail(folder, "loss")
    for step in range(4):
        report(folder, step=step, loss=step)
    tail.read()
    report(folder, step=2, loss=20)
    report(folder, step=3, loss=30)
    assert tail.read() == (2, [20.0, 30.0])
    report(folder, step=0, loss=5)
    report(folder, step=1, loss=6)
    report(folder, step=0, loss=7)
    assert tail.read() == (0, [7.0])


def test_a_file_that_was_replaced_is_read_from_its_beginning(folder: str) -> None:
    tail = MetricTail(folder, "loss")
    report(folder, step=5, loss=1)
    tail.read()
    os.replace(f"{folder}/metrics.jsonl", f"{folder}/old")
    report(folder, step=1, loss=2)
    assert tail.read() == (0, [2.0])


def test_a_regex_finds_values_in_the_log(folder: str) -> None:
    os.makedirs(folder)
    tail = MetricTail(folder, "acc", re.compile(rb"acc=(\S+)"))
    with open(f"{folder}/log.txt", "w", encoding="utf-8") as file:
        file.write("epoch 1 acc=0.5\nepoch 2 acc=oops acc=0.6\nacc=0.")
    assert tail.read() == (0, [0.5, 0.6])
    report(folder, acc=0.9)
    assert tail.read() == (2, [0.9])


def test_odd_files_are_no_reports(folder: str) -> None:
    os.makedirs(folder)
    os.mkfifo(f"{folder}/metrics.jsonl")
    assert MetricTail(folder, "loss").read() == (0, [])
    os.unlink(f"{folder}/metrics.jsonl")
    os.mkdir(f"{folder}/metrics.jsonl")
    assert MetricTail(folder, "loss").read() == (0, [])


def test_a_line_without_end_is_passed_over(folder: str) -> None:
    os.makedirs(folder)
    with open(f"{folder}/metrics.jsonl", "wb") as file:
        file.truncate(40 << 20)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + json.dumps({"loss": 1}).encode() + b"\n")
    tail = MetricTail(folder, "loss")
    values = [value for _read in range(4) for value in tail.read().values]
    assert values == [1.0]


def test_files_of_training_libraries_count_while_nothing_is_reported(tmp_path: Path) -> None:
    tail = MetricTail(str(tmp_path), "loss")
    table = tmp_path / "logs" / "metrics.csv"
    table.parent.mkdir()
    table.write_text("step,loss\n1,3\n2,2\n")
    assert tail.read() == (0, [3.0, 2.0])
    table.write_text("step,loss\n1,3\n2,2\n3,1")
    assert tail.read() == (2, [])
    assert tail.read(is_last=True) == (2, [1.0])
    assert tail.read() == (3, [])


def test_a_log_that_is_written_anew_keeps_the_values_before(tmp_path: Path) -> None:
    tail = MetricTail(str(tmp_path), "loss")
    state = tmp_path / "trainer_state.json"
    for number in (1, 3):
        log = [{"loss": step, "step": step} for step in range(1, number + 1)]
        state.write_text(json.dumps({"log_history": log}))
        kept, values = tail.read()
        assert (kept, values) == ((0, [1.0]) if number == 1 else (1, [2.0, 3.0]))


def test_a_file_that_goes_on_where_another_one_ended_repeats_only_its_steps(tmp_path: Path) -> None:
    tail = MetricTail(str(tmp_path), "loss")
    for number, rows in enumerate(("1,9\n2,8\n3,7\n", "3,6\n4,5\n")):
        table = tmp_path / f"version_{number}" / "metrics.csv"
        table.parent.mkdir()
        table.write_text(f"step,loss\n{rows}")
        os.utime(table, (number, number))
        assert tail.read() == ((0, [9.0, 8.0, 7.0]), (2, [6.0, 5.0]))[number]


def test_a_table_without_steps_that_is_begun_anew_drops_all_values(tmp_path: Path) -> None:
    tail = MetricTail(str(tmp_path), "loss")
    table = tmp_path / "metrics.csv"
    table.write_text("loss\n9\n8\n")
    assert tail.read() == (0, [9.0, 8.0])
    table.unlink()
    (tmp_path / "new").write_text("loss\n7\n")
    (tmp_path / "new").rename(table)
    assert tail.read() == (0, [7.0])
