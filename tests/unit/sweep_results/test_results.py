from __future__ import annotations

import csv
import io
import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.errors import NotFoundError, StokerError, UsageError
from stoker.sweep_results.collect import collect
from stoker.sweep_results.curves import read_curves, read_mean_curves, read_thin_curves
from stoker.sweep_results.formats import to_csv, to_json, to_latex, to_markdown, to_text
from stoker.sweep_results.results import Results
from stoker.sweep_results.table import Stat, aggregate, make_table


def make_run(
    root: Path, name: str, params: dict[str, Any], steps: list[dict[str, Any]] | None = None
) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "params.json").write_text(json.dumps(params))
    if steps is not None:
        lines = "".join(json.dumps(step) + "\n" for step in steps)
        (folder / "metrics.jsonl").write_text(lines)
    return folder


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a sweep over lr and seed whose metrics are known; one run has none."""
    root = tmp_path / "results" / "demo"
    for lr in (0.1, 0.01):
        for seed in range(3):
            steps = [{"step": s, "time": 1, "acc": lr + seed + s / 10} for s in range(3)]
            lost = lr == 0.01 and seed == 2
            make_run(
                root,
                f"lr={lr},seed={seed}",
                {"lr": lr, "seed": seed, "k": 1},
                None if lost else steps,
            )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    return root


def test_runs_are_a_list(sweep: Path) -> None:
    rs = stoker.results("demo")

    assert len(rs) == 6
    assert repr(rs) == "<Results: 6 runs>"
    assert rs[0].params == {"lr": 0.01, "seed": 0, "k": 1}
    assert rs[0].metrics == {"step": 2, "acc": pytest.approx(0.21)}
    assert rs[0].dir == str(sweep / "lr=0.01,seed=0")
    assert [run.id for run in rs[1:3]] == ["lr=0.01,seed=1", "lr=0.01,seed=2"]
    assert len(stoker.results(str(sweep))) == 6


def test_the_best_run_is_found(sweep: Path) -> None:
    rs = stoker.results("demo")

    assert rs.best("acc").params == {"lr": 0.1, "seed": 2, "k": 1}
    assert rs.best("acc", "minimize").params["seed"] == 0
    with pytest.raises(UsageError, match="no run has 'ac': did you mean 'acc'"):
        rs.best("ac")


def test_a_goal_that_does_not_exist_is_refused(sweep: Path) -> None:
    with pytest.raises(UsageError, match="goal 'max': write minimize or maximize"):
        stoker.results(str(sweep)).best("acc", goal="max")


def test_the_sweeps_goal_decides_what_is_best(sweep: Path) -> None:
    (sweep / "sweep.json").write_text('{"name": "demo", "metric": "acc", "goal": "minimize"}')

    assert stoker.results("demo").best("acc").params["lr"] == 0.01


def test_means_deviations_and_missing_runs_are_right(sweep: Path) -> None:
    low, high = stoker.results("demo").agg("acc", over="seed")

    assert low == {"lr": 0.01, "acc": Stat(*_stat([0.21, 1.21]), 2), "runs": 3, "missing": 1}
    assert high == {"lr": 0.1, "acc": Stat(*_stat([0.3, 1.3, 2.3]), 3), "runs": 3, "missing": 0}


def _stat(values: list[float]) -> tuple[Any, Any]:
    return pytest.approx(statistics.mean(values)), pytest.approx(statistics.stdev(values))


def test_only_varied_parameters_are_columns(sweep: Path) -> None:
    table = make_table(collect(str(sweep)))

    assert table.columns == ["run", "lr", "seed", "acc", "state"]
    assert table.rows[2][1:] == [0.01, 2, None, None]


def test_runs_are_filtered_and_sorted(sweep: Path) -> None:
    rs = stoker.results("demo")

    assert [run.params["seed"] for run in rs.where("lr > 0.05").sort("-acc")] == [2, 1, 0]
    assert [run.metrics.get("acc") for run in rs.sort("-acc")][-1] is None
    assert len(rs.where("acc > 1 and seed in [1, 2]")) == 3
    with pytest.raises(UsageError, match="no run has 'rl'"):
        rs.where("rl > 1")
    with pytest.raises(UsageError, match="cannot read the condition"):
        rs.where("lr >")


def test_tables_in_every_format(sweep: Path) -> None:
    table = aggregate(collect(str(sweep)), ["seed"])

    assert to_markdown(table) == (
        "|   lr |             acc | runs | missing |\n"
        "| ---: | --------------: | ---: | ------: |\n"
        "| 0.01 | 0.71 ± 0.71 (2) |    3 |       1 |\n"
        "|  0.1 |   1.3 ± 1.0 (3) |    3 |       0 |\n"
    )
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert float(rows[1]["acc_mean"]) == pytest.approx(1.3)
    assert rows[1]["acc_n"] == "3"
    assert json.loads(to_json(table))[1]["acc"] == {
        "mean": pytest.approx(1.3),
        "std": pytest.approx(1),
        "n": 3,
    }
    assert r"0.1 & $1.3 \pm 1.0$ (3) & 3 & 0 \\" in to_latex(table)


def test_odd_values_are_harmless_in_any_format(tmp_path: Path) -> None:
    make_run(tmp_path, "a", {"x": 'a|b_&%\n,"', "l": [1, 2]})
    make_run(tmp_path, "b", {"x": None, "l": [1]}, [{"m": "inf"}, {"m": "nan"}, {"m": True}])
    table = make_table(collect(str(tmp_path)))

    assert r"a\|b_&%" in to_markdown(table)
    assert r"a|b\_\&\%" in to_latex(table)
    assert list(csv.reader(io.StringIO(to_csv(table))))[1][1] == 'a|b_&%\n,"'
    assert json.loads(to_json(table))[0]["x"] == 'a|b_&%\n,"'
    assert to_text(None) == ""


def test_metrics_come_from_three_places(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "a", {}, [{"loss": 3.0, "t": 1}])
    (folder / "metrics.json").write_text('{"loss": 2.0, "eval": {"acc": 0.9}}')
    (folder / "log.txt").write_text("acc: 0.1\nbla\nacc: 0.25 \n")
    (tmp_path / "sweep.json").write_text(
        json.dumps({"name": "a", "metric": "top", "regex": r"acc: ([\d.]+)"})
    )

    (run,) = collect(str(tmp_path))

    assert run.metrics == {"top": 0.25, "loss": 2.0, "t": 1, "eval.acc": 0.9}


def test_an_unreadable_file_affects_only_its_run(tmp_path: Path) -> None:
    broken = make_run(tmp_path, "a", {"x": 1})
    (broken / "metrics.jsonl").write_bytes(b'{"m": 1}\n{"m": \xff}\n{"m": 3}\n{"m": 4')
    worse = make_run(tmp_path, "b", {"x": 2})
    (worse / "params.json").write_text("{")
    summary = make_run(tmp_path, "c", {"x": 3})
    (summary / "metrics.json").write_text("nonsense")
    make_run(tmp_path, "d", {"x": 4}, [{"m": 2}])

    a, b, c, d = collect(str(tmp_path))

    assert a.metrics == {"m": 3}
    assert a.problem is not None
    assert a.problem.startswith("metrics.jsonl:2: ")
    assert b.problem is not None
    assert b.problem.startswith("params.json: ")
    assert c.problem is not None
    assert d.problem is None
    assert d.metrics == {"m": 2}


def test_runs_in_nested_folders_are_found(tmp_path: Path) -> None:
    make_run(tmp_path / "x" / "y", "a", {"p": 1})
    make_run(tmp_path / "x" / "y" / "a", "inner", {"p": 2})

    assert [run.id for run in collect(str(tmp_path))] == ["a"]


def test_a_missing_folder_is_an_error_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(
        NotFoundError, match=r"no results of nope: there is no folder .*results/nope"
    ):
        stoker.results("nope")


def test_curves_are_read_step_by_step(sweep: Path) -> None:
    curves = read_curves(collect(str(sweep)), "step", "acc")

    assert len(curves) == 5
    assert curves[0].label == "lr=0.01,seed=0"
    assert curves[0].xs == [0, 1, 2]
    assert curves[0].ys == pytest.approx([0.01, 0.11, 0.21])
    with pytest.raises(NotFoundError) as caught:
        read_curves(collect(str(sweep)), "step", "loss")
    assert str(caught.value) == "no run has reported loss over step: they reported acc"


def test_a_thin_curve_keeps_its_spikes_its_gaps_and_its_ends(tmp_path: Path) -> None:
    values: list[Any] = [0.5] * 1000
    values[0], values[333], values[601], values[777], values[999] = 0.4, 9.0, "nan", -3.0, 0.6
    make_run(tmp_path, "a", {}, [{"step": at, "m": value} for at, value in enumerate(values)])
    ((_metric, xs, ys),) = read_thin_curves(str(tmp_path / "a"), "step", ["m", "none"], 100)

    assert len(xs) <= 110
    points = dict(zip(xs, ys, strict=True))
    assert [points[at] for at in (0, 333, 777, 999)] == [0.4, 9.0, -3.0, 0.6]
    assert math.isnan(points[601])


def test_a_curve_over_time_begins_at_zero(tmp_path: Path) -> None:
    make_run(tmp_path, "a", {}, [{"time": 1000.0 + at, "m": at} for at in (0, 2, 5)])
    ((_metric, xs, _ys),) = read_thin_curves(str(tmp_path / "a"), "time", ["m"], 100)
    assert xs == [0, 2, 5]


def test_curves_of_means_count_what_all_runs_of_a_group_reported(sweep: Path) -> None:
    records = collect(str(sweep))
    mean, _other = read_mean_curves(records, "step", "acc", ["seed"])
    runs = [each for each in read_curves(records, "step", "acc") if "lr=0.01" in each.label]

    assert mean.label == f"lr=0.01 ({len(runs)})"
    assert mean.xs == [0, 1, 2]
    for place in range(3):
        values = [run.ys[place] for run in runs]
        assert mean.ys[place] == pytest.approx(statistics.mean(values))
        assert mean.deviations is not None
        assert mean.deviations[place] == pytest.approx(statistics.stdev(values))
    with pytest.raises(UsageError, match="no run has 'sed'"):
        read_mean_curves(records, "step", "acc", ["sed"])


def test_steps_that_one_run_of_a_group_lacks_are_left_out(tmp_path: Path) -> None:
    def report(*steps: int) -> list[dict[str, Any]]:
        return [{"step": step, "m": 1.0} for step in steps]

    make_run(tmp_path, "a", {"seed": 0}, report(1, 2, 3))
    make_run(tmp_path, "b", {"seed": 1}, report(2, 3, 4))
    (mean,) = read_mean_curves(collect(str(tmp_path)), "step", "m", ["seed"])
    assert (mean.label, mean.xs) == ("all (2)", [2, 3])

    make_run(tmp_path, "c", {"seed": 2}, report(9))
    with pytest.raises(NotFoundError, match=r"all \(3\): these runs have no step in common"):
        read_mean_curves(collect(str(tmp_path)), "step", "m", ["seed"])


def test_a_missing_extra_is_named(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from stoker.sweep_results.plot import draw, save

    for name in ("plotext", "matplotlib", "matplotlib.figure", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    curves = read_curves(collect(str(sweep)), "step", "acc")

    with pytest.raises(StokerError, match=r"stoker\[plot\]"):
        draw(curves, "step", "acc", width=80, height=20)
    with pytest.raises(StokerError, match=r"stoker\[plot\]"):
        save(curves, "step", "acc", "x.png")
    with pytest.raises(StokerError, match=r"stoker\[pandas\]"):
        Results([]).to_pandas()
