from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import stoker
from stoker.reporting import report


def test_report_outside_of_stoker_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STOKER_RUN_DIR", raising=False)
    monkeypatch.chdir(tmp_path)

    assert report(1, loss=2) is False
    assert os.listdir(tmp_path) == []


def test_each_call_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_RUN_DIR", str(tmp_path / "run"))

    assert stoker.report(0, loss=0.5, name="ä") is False
    assert stoker.report(loss=float("nan"), big=float("inf")) is False

    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    first, second = (json.loads(line) for line in lines)
    assert first.pop("time") > 0
    assert first == {"step": 0, "loss": 0.5, "name": "ä"}
    assert (second["loss"], second["big"]) == ("nan", "inf")


def test_report_returns_whether_the_run_should_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_RUN_DIR", str(tmp_path))
    (tmp_path / ".stop").touch()

    assert report(1, loss=1) is True


def test_a_metric_that_is_not_a_number_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Scalar:
        def item(self) -> float:
            return 1.5

    monkeypatch.setenv("STOKER_RUN_DIR", str(tmp_path))

    report(x=Scalar())
    with pytest.raises(TypeError, match="a metric is a number or a text"):
        report(x=[1])

    assert json.loads((tmp_path / "metrics.jsonl").read_text())["x"] == 1.5


def test_many_processes_may_report_at_once(tmp_path: Path) -> None:
    code = "import stoker\nfor step in range(200): stoker.report(step, loss=step)"
    env = {**os.environ, "STOKER_RUN_DIR": str(tmp_path)}
    children = [subprocess.Popen([sys.executable, "-c", code], env=env) for _ in range(4)]

    assert [child.wait() for child in children] == [0] * 4
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["step"] for line in lines) == sorted(list(range(200)) * 4)


def test_a_script_that_reports_imports_only_the_standard_library() -> None:
    source = os.path.dirname(os.path.dirname(stoker.__file__))
    code = (
        f"import sys; sys.path.insert(0, {source!r}); import stoker; stoker.report\n"
        "print([n for n in sys.modules if n.split('.')[0] in ('msgspec', 'rich', 'ruamel', 'typing')"
        " or n.startswith('stoker.') and n != 'stoker.reporting'])"
    )

    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"
