"""Files with metrics are read on while a run writes them: each value is returned once."""

from __future__ import annotations

import json
import os
from pathlib import Path

from stoker.sweep_results.metric_files.found import FoundMetrics
from unit.sweep_results.test_found_metrics import record, simple


def test_rows_of_a_table_come_once_each_when_their_lines_are_whole(tmp_path: Path) -> None:
    path, found = tmp_path / "metrics.csv", FoundMetrics(str(tmp_path), "loss")
    for text, new in (
        ("step,lo", []),
        ("step,loss\n", []),
        ("step,loss\n1,3\n2,2", [{"step": 1, "loss": 3}]),
        ("step,loss\n1,3\n2,2.5\n", [{"step": 2, "loss": 2.5}]),
    ):
        path.write_text(text)
        assert found.read() == (new, False)
    with path.open("a") as file:
        file.write("3,1")
    assert found.read() == ([], False)
    assert found.read(is_last=True) == ([{"step": 3, "loss": 1}], False)


def test_a_table_that_gets_another_column_is_read_anew(tmp_path: Path) -> None:
    path, found = tmp_path / "metrics.csv", FoundMetrics(str(tmp_path), "loss")
    path.write_text("step,loss\n1,3\n")
    assert found.read() == ([{"step": 1, "loss": 3}], False)

    path.write_text("step,loss,acc\n1,3,\n2,2,0.5\n")

    assert found.read() == ([{"step": 1, "loss": 3}, {"step": 2, "loss": 2, "acc": 0.5}], True)


def test_a_log_of_trainer_comes_anew_with_each_checkpoint(tmp_path: Path) -> None:
    found = FoundMetrics(str(tmp_path), "loss")
    for number in (1, 2):
        folder = tmp_path / f"checkpoint-{number}"
        folder.mkdir()
        log = [{"loss": 1 / step, "step": step} for step in range(1, number + 1)]
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": log}))
        os.utime(folder / "trainer_state.json", (number, number))
        assert found.read() == (log, number == 2)
    assert found.read() == ([], False)


def test_events_of_tensorboard_come_once_each(tmp_path: Path) -> None:
    found = FoundMetrics(str(tmp_path), "loss")
    first, second = record(1, simple("loss", 0.5)), record(2, simple("loss", 0.25))
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(first + second[:10])
    assert found.read().entries == [{"step": 1, "loss": 0.5}]
    path.write_bytes(first + second)
    assert found.read().entries == [{"step": 2, "loss": 0.25}]
    (tmp_path / "events.out.tfevents.2").write_bytes(record(3, simple("loss", 0.125)))
    assert found.read().entries == [{"step": 3, "loss": 0.125}]
    assert found.read().entries == []


def test_a_mapping_in_json_is_one_report_each_time_it_changes(tmp_path: Path) -> None:
    found = FoundMetrics(str(tmp_path), "val.acc")
    path = tmp_path / "out" / "metrics.json"
    path.parent.mkdir()
    for number, acc in enumerate((0.5, 0.75)):
        path.write_text(json.dumps({"epoch": number, "val": {"acc": acc}}))
        os.utime(path, (number, number))
        assert found.read() == ([{"epoch": number, "val.acc": acc}], False)
    path.write_text('{"epoch": 3, "val"')
    assert found.read() == ([], False)


def test_of_several_kinds_of_files_the_one_with_the_metric_counts(tmp_path: Path) -> None:
    found = FoundMetrics(str(tmp_path), "acc")
    (tmp_path / "metrics.csv").write_text("step,loss\n1,3\n")
    assert found.read().entries == []

    (tmp_path / "metrics.json").write_text('[{"step": 1, "acc": 0.5}]')

    assert found.read().entries == [{"step": 1, "acc": 0.5}]
    without = FoundMetrics(str(tmp_path), "missing").read(is_last=True)
    assert without.entries == [{"step": 1, "loss": 3}]
