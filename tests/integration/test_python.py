"""`stoker.run`, `stoker.sweep` and `stoker.Task`, each without a daemon."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

import stoker
from integration.api import Scripts
from integration.calls import Train, train
from stoker import JobsFailedError, SweepFailedError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Stoker


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.chdir(tmp_path)


def test_commands_run_on_their_gpus_and_their_jobs_are_returned(tmp_path: Path) -> None:
    lines = ["echo $CUDA_VISIBLE_DEVICES $X | tee here", ["printf", "%s", "a  b; c"]]
    jobs = stoker.run(lines, gpus=[["x", "y"]], logs="logs", env={"X": "1"})

    assert [job.ok for job in jobs] == [True, True]
    assert (tmp_path / "here").read_text() == "x,y 1\n"
    assert (tmp_path / "logs" / "2.log").read_text() == "a  b; c"
    assert jobs[0].gpus == ["x", "y"]


def test_failures_are_raised_when_all_has_run() -> None:
    with pytest.raises(JobsFailedError, match="2 of 3 failed: exit 1: false; exit 3") as caught:
        stoker.run(["false", "exit 3", "true"], gpus="a")
    assert [job.state for job in caught.value.jobs] == ["failed", "failed", "done"]

    jobs = stoker.run(["false", "true"], gpus="a", check=False, fail_fast=True)
    assert [job.state for job in jobs] == ["failed", "waiting"]


def test_logs_start_afresh_and_a_retry_has_its_own(tmp_path: Path) -> None:
    line = "echo $STOKER_ATTEMPT; test $STOKER_ATTEMPT = 2"
    stoker.run([line], gpus="a", logs="logs", retries=1)
    [job] = stoker.run([line], gpus="a", logs="logs", retries=1)

    read = {file.name: file.read_text() for file in (tmp_path / "logs").iterdir()}
    assert read == {"1.log": "1\n", "1.2.log": "2\n"}
    assert job.log == str(tmp_path / "logs" / "1.2.log")


def test_a_run_with_a_name_is_gone_on_with(tmp_path: Path) -> None:
    lines = ["echo 1 >> ran", "echo 2 >> ran; test -e ok"]
    with pytest.raises(JobsFailedError):
        stoker.run(lines, gpus="a", resume="mine")
    (tmp_path / "ok").touch()
    jobs = stoker.run(lines, gpus="a", resume="mine")

    assert (tmp_path / "ran").read_text() == "1\n2\n2\n"
    assert [job.skipped for job in jobs] == [True, False]


def test_a_function_is_swept_and_its_metrics_are_results(tmp_path: Path) -> None:
    found = stoker.sweep(
        train,
        {"lr": [0.1, 0.2], "opt.name": ["sgd"]},
        repeats=2,
        gpus="a,b",
        metric={"name": "acc", "goal": "minimize"},
    )

    assert len(found) == 4
    assert found.best("acc").params == {"lr": 0.2, "opt.name": "sgd", "seed": 0}
    assert [record.metrics["acc"] for record in found] == [0.9, 0.9, 0.8, 0.8]
    assert {record.state for record in found} == {"done"}
    assert {record.facts["gpu"] for record in found} <= {"a", "b"}
    assert "training with sgd\n" in (tmp_path / found[0].dir / "log.txt").read_text()
    read_again = stoker.results("train")
    assert [record.state for record in read_again] == ["done"] * 4
    assert read_again[0].facts["gpu_hours"] > 0


def test_a_sweep_runs_again_only_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL_AT", "0.2")
    space = {"lr": [0.1, 0.2], "opt.name": ["sgd"]}
    with pytest.raises(SweepFailedError, match="1 of 2 failed") as caught:
        stoker.sweep(train, space, gpus="a", fixed={"seed": 0})
    assert [record.state for record in caught.value.results] == ["done", "failed"]
    log = caught.value.failed[0].log
    assert log is not None
    with open(log) as file:
        assert file.read().rstrip().endswith("ValueError: too fast")

    monkeypatch.delenv("FAIL_AT")
    again = stoker.sweep(train, space, gpus="a", fixed={"seed": 0})
    assert [record.facts["attempts"] for record in again] == [0, 2]
    rerun = stoker.sweep(train, space, gpus="a", fixed={"seed": 0}, rerun="all")
    assert [record.facts["attempts"] for record in rerun] == [1, 1]


def test_a_task_is_asked_for_its_environment_here_and_works_there() -> None:
    found = stoker.sweep(Train, {"size": [1, 2, 3]}, gpus="a", check=False)

    assert [record.state for record in found] == ["done", "failed", "done"]
    assert found[0].metrics == {"asked_in": os.getpid(), "size": 1, "gpu": "a", "is_home": True}
    assert os.path.exists(os.path.join(found[0].dir, "asked"))


def test_a_sweep_stops_after_so_many_failures() -> None:
    found = stoker.sweep("exit {i}", {"i": [1, 2, 3, 4]}, gpus="a", check=False, max_failures=2)
    assert [record.state for record in found] == ["failed", "failed", "waiting", "waiting"]


def test_mistakes_are_told_before_anything_runs(tmp_path: Path) -> None:
    for work, space, text in (
        ("echo {x}", {"y": [1]}, "x"),
        (train, {"lr": []}, "lr"),
        (train, {"lr": {"min": 2, "max": 1}}, "lr"),
        (3, {"lr": [1]}, "not over 3"),
    ):
        with pytest.raises(UsageError, match=text):
            stoker.sweep(work, space, gpus="a")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'undone' or 'all'"):
        stoker.sweep(train, {"lr": [1]}, rerun="new")
    assert not (tmp_path / "home").exists()


def test_a_class_without_a_main_says_so() -> None:
    with pytest.raises(NotImplementedError, match=r"Task has no main\(self\)"):
        stoker.Task({}, ".").main()


def test_everything_is_exported_and_nothing_is_imported_before_it_is_used(stoker: Stoker) -> None:
    out = Scripts(stoker).ok(
        """
        import sys
        import stoker
        heavy = {"msgspec", "cloudpickle", "sqlite3", "asyncio", "concurrent.futures", "pynvml"}
        print(heavy & sys.modules.keys())
        for name in stoker.__all__:
            getattr(stoker, name)
        print(dir(stoker) == stoker.__all__, {"sqlite3", "asyncio", "pynvml"} & sys.modules.keys())
        """
    )
    assert out == "set()\nTrue set()\n"


def test_it_works_inside_a_running_event_loop() -> None:
    async def work() -> list[str]:
        return [job.state for job in stoker.run(["true"], gpus="a")]

    assert asyncio.run(work()) == ["done"]


def test_functions_typed_at_a_prompt_are_called(stoker: Stoker) -> None:
    text = """
import stoker
def double(x): return 2 * x
with stoker.Executor(gpus="0") as executor: print(executor.submit(double, 4).result())
"""
    ended = Scripts(stoker).prompt(text)
    assert (ended.code, ended.out) == (0, "8\n"), ended


def test_no_gpu_at_all_is_told() -> None:
    nothing: list[str | list[str]] = ["", [], ","]
    for gpus in nothing:
        with pytest.raises(UsageError, match="no GPU is named"):
            stoker.run(["true"], gpus=gpus)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'swep'"):
        _ = stoker.swep


def test_an_interrupt_ends_all_trees(stoker: Stoker) -> None:
    scripts = Scripts(stoker)
    script = scripts.start(
        """
        import stoker
        stoker.run(["setsid sleep 1000 & echo $! > t; mv t tree; sleep 1000"], gpus="0")
        """
    )
    tree = scripts.work / "tree"
    stoker.until(tree.exists, "the command runs")
    script.send_signal(signal.SIGINT)
    ended = stoker.end(script)
    assert ended.err.rstrip().endswith("KeyboardInterrupt")
    stoker.until(lambda: not stoker.is_alive(int(tree.read_text())), "its tree is gone")


def test_only_the_processes_that_work_see_a_gpu(stoker: Stoker) -> None:
    out = Scripts(stoker).ok(
        """
        import os, stoker
        def look():
            return os.environ.get("CUDA_VISIBLE_DEVICES")
        with stoker.Executor(gpus="2") as executor:
            print(executor.submit(look).result(), look())
        """
    )
    assert out == "2 None\n"


def test_python_of_the_call_is_this_one() -> None:
    with stoker.Executor(1, gpus_per_job=0) as executor:
        assert executor.submit(os.readlink, "/proc/self/exe").result() == os.path.realpath(
            sys.executable
        )


CHANGING = """
import stoker

def scale(lr):
    return lr * {factor}

def train(lr):
    return {{{names!r}: scale(lr)}}

if __name__ == "__main__":
    found = stoker.sweep(train, {{"lr": [1, 2]}}, gpus="a"{more})
    print([record.metrics for record in found])
"""


def test_runs_of_a_function_that_changed_are_not_reused_and_reuse_is_told(stoker: Stoker) -> None:
    scripts = Scripts(stoker)

    def sweep(factor: int, names: str = "acc", more: str = "") -> tuple[str, str]:
        ended = scripts.run(CHANGING.format(factor=factor, names=names, more=more))
        assert ended.code == 0, ended
        return ended.out, ended.err

    assert sweep(10) == ("[{'acc': 10}, {'acc': 20}]\n", "")
    assert sweep(10) == (
        "[{'acc': 10}, {'acc': 20}]\n",
        "stoker: sweep train: 2 of 2 runs are reused from results/train (rerun='all' repeats them)\n",
    )
    other = "stoker: sweep train: 2 of 2 runs were done with other code: they run again\n"
    assert sweep(30) == ("[{'acc': 30}, {'acc': 60}]\n", other)
    assert sweep(30, "loss") == ("[{'loss': 30}, {'loss': 60}]\n", other)
    assert sweep(30, "loss", ", rerun='all'") == ("[{'loss': 30}, {'loss': 60}]\n", "")
    assert len(list((scripts.work / "results" / "train").iterdir())) == 3  # two runs, sweep.json


def test_commands_that_are_reused_are_told(capfd: pytest.CaptureFixture[str]) -> None:
    stoker.sweep("true {i}", {"i": [1, 2]}, gpus="a", name="t")
    assert capfd.readouterr().err == ""
    stoker.sweep("true {i}", {"i": [1, 2, 3]}, gpus="a", name="t")

    told = "stoker: sweep t: 2 of 3 runs are reused from results/t (rerun='all' repeats them)\n"
    assert capfd.readouterr().err == told
