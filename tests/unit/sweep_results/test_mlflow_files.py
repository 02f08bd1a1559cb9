"""What MLflow has recorded is read without MLflow, from its database and from its files."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stoker.store.mlflow_database import read_newest_run
from stoker.sweep_results.collect import read_run
from stoker.sweep_results.curves import read_curve
from stoker.sweep_results.metric_files.found import FoundMetrics, read_found_steps

TABLES = """
CREATE TABLE runs (run_uuid VARCHAR PRIMARY KEY, start_time BIGINT);
CREATE TABLE metrics (key VARCHAR, value FLOAT, timestamp BIGINT, run_uuid VARCHAR, step BIGINT,
  is_nan BOOLEAN);
"""
Row = tuple[str, float, int, int]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as made:
        made.executescript(TABLES)
        yield made


def log(database: sqlite3.Connection, run: str, rows: Iterable[Row], started: int = 0) -> None:
    with database:
        database.execute("INSERT OR IGNORE INTO runs VALUES (?, ?)", (run, started))
        for key, value, step, is_nan in rows:
            found = (key, value, 0, run, step, is_nan)
            database.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", found)


def test_the_newest_run_of_a_database_counts(tmp_path: Path, database: sqlite3.Connection) -> None:
    log(database, "a", [("acc", 0.9, 5, 0)], started=1)
    log(database, "b", [("acc", step / 10, step, 0) for step in range(3)], started=2)
    log(database, "c", [], started=3)

    assert read_run(str(tmp_path)).metrics == {"step": 2, "acc": 0.2}
    assert read_curve(str(tmp_path), "step", "acc") == ([0.0, 1.0, 2.0], [0.0, 0.1, 0.2])


def test_nan_and_infinite_values_are_what_was_logged(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    log(database, "a", [("x", 0.0, 1, 1), ("y", 1.7976931348623157e308, 1, 0)])

    metrics = read_run(str(tmp_path)).metrics

    assert math.isnan(metrics["x"])
    assert metrics["y"] == math.inf


def test_values_without_steps_are_numbered(tmp_path: Path, database: sqlite3.Connection) -> None:
    log(database, "a", [("loss", value, 0, 0) for value in (3.0, 2.0, 1.0)])

    assert read_curve(str(tmp_path), "step", "loss") == ([0.0, 1.0, 2.0], [3.0, 2.0, 1.0])


def test_a_database_that_grows_is_read_on(tmp_path: Path, database: sqlite3.Connection) -> None:
    found = FoundMetrics(str(tmp_path), "loss")
    assert found.read() == ([], False)

    log(database, "a", [("loss", 3.0, 1, 0)], started=1)
    assert found.read() == ([{"step": 1, "loss": 3}], False)
    assert found.read() == ([], False)
    log(database, "a", [("loss", 2.0, 2, 0)])
    assert found.read() == ([{"step": 2, "loss": 2}], False)
    log(database, "retry", [("loss", 1.0, 1, 0)], started=2)
    assert found.read() == ([{"step": 1, "loss": 1}], True)


OTHER_TYPES = (
    f"{TABLES} INSERT INTO runs VALUES (x'ff', 'soon');"
    " INSERT INTO metrics VALUES (x'00', 'text', 0, x'ff', 'one', NULL)"
)
ENDLESS = """
CREATE TABLE runs (run_uuid, start_time);
INSERT INTO runs VALUES ('a', 1);
CREATE VIEW metrics AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
SELECT i AS rowid, 'k' AS key, 1.0 AS value, 0 AS step, 0 AS is_nan, 'b' AS run_uuid FROM n;
"""


@pytest.mark.parametrize("tables", ["CREATE TABLE other (x)", OTHER_TYPES, ENDLESS])
def test_databases_with_other_content_have_no_metrics(
    tmp_path: Path, tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.store.mlflow_database._MOST_S", 0.2)
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as made:
        made.executescript(tables)

    assert read_run(str(tmp_path)).metrics == {}


def test_what_is_no_database_has_no_metrics(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    for content in (b"", b"SQLite format 3\0" + b"\xff" * 5000, b"text"):
        path.write_bytes(content)
        assert read_newest_run(str(path)) is None
        assert read_run(str(tmp_path)).metrics == {}


def test_files_of_mlflow_are_read(tmp_path: Path) -> None:
    run = tmp_path / "mlruns" / "0" / "abc"
    (run / "metrics" / "val").mkdir(parents=True)
    (run / "meta.yaml").write_text("name: x\n")
    (run / "metrics" / "val" / "acc").write_text(
        "1700 0.5 1\n1701 0.75 2\n1702 nan 3\nbad line x y\n"
    )
    (run / "metrics" / "loss").write_text("1700 1.5 1\n1701 2.5")

    steps = read_found_steps(str(tmp_path))

    assert [step["step"] for step in steps] == [1, 1, 2, 3]
    assert [step["val/acc"] for step in steps if "val/acc" in step][:2] == [0.5, 0.75]
    assert [step["loss"] for step in steps if "loss" in step] == [1.5]


def test_a_folder_metrics_that_is_not_of_mlflow_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "loss").write_text("1700 1.5 1\n")

    assert read_found_steps(str(tmp_path)) == []
