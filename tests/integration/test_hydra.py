"""Hydra sweeps whose jobs Stoker runs."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hydra_plugins.stoker_launcher.launcher import StokerLauncherConf

if TYPE_CHECKING:
    from conftest import Ended
    from integration.daemon_fixture import Queue

EXAMPLE = Path(__file__).parents[2] / "examples" / "hydra"

PROGRAM = """
import hydra, os, pathlib, time
@hydra.main(version_base=None)
def main(cfg):
    with open(f"calls-{cfg.x}", "a") as file:
        file.write("called\\n")
    if cfg.x == "raise":
        raise LookupError("no such thing")
    if cfg.x == "exit":
        os._exit(7)
    while cfg.x == "wait" and not pathlib.Path("go").exists():
        time.sleep(0.02)
    return 5
main()
"""
LAUNCHER = "hydra/launcher=stoker"


def start(queue: Queue, *words: str, program: str = "train.py") -> subprocess.Popen[bytes]:
    return queue.stoker.adopt(
        subprocess.Popen(
            [sys.executable, program, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=queue.env,
            cwd=queue.work,
        )
    )


def run(queue: Queue, *words: str) -> Ended:
    return queue.stoker.end(start(queue, *words))


def write(queue: Queue, text: str = PROGRAM) -> None:
    (queue.work / "train.py").write_text(text)


def test_the_example_runs_each_job_on_a_gpu_of_the_queue(queue: Queue) -> None:
    shutil.copytree(EXAMPLE, queue.work, dirs_exist_ok=True)
    ended = run(queue, "-m", "lr=0.1,0.5", "hydra.launcher.priority=3")

    assert (ended.code, ended.err) == (0, ""), ended
    jobs = queue.ls("-P", "train")
    assert sorted(job["name"] for job in jobs.values()) == ["lr=0.1", "lr=0.5"]
    assert {job["state"] for job in jobs.values()} == {"done"}
    assert {job["priority"] for job in jobs.values()} == {3}
    assert "lr 0.5 on GPU" in queue.ok("log", "lr=0.5")
    assert "lr 0.5 on GPU" in (queue.work / "sweep/lr=0.5/log.txt").read_text()
    assert (queue.work / "sweep/lr=0.5/.hydra/config.yaml").exists()
    best = json.loads(queue.ok("results", "sweep", "--json", "--sort", "value"))[0]
    assert best["lr"] == 0.5


def test_the_page_names_all_options_of_the_launcher() -> None:
    page = (EXAMPLE.parents[1] / "docs" / "how-to" / "hydra.md").read_text()
    known = {each.name for each in dataclasses.fields(StokerLauncherConf)} - {
        "_target_",
        "defaults",
    }
    assert {name for name in known if f"`{name}`" not in page} == set()


def test_a_failed_job_fails_in_the_queue_and_in_hydra(queue: Queue) -> None:
    write(queue)
    ended = run(queue, "-m", LAUNCHER, "+x=fine,raise,exit", "hydra.sweep.dir=sweep")

    assert ended.code == 1
    assert "2 of 3 jobs failed: #1 (+x=raise)" in ended.out
    assert ended.err.rstrip().endswith("LookupError: no such thing"), ended.err
    assert "LookupError: no such thing" in (queue.work / "sweep/1/log.txt").read_text()
    states = {job["name"]: (job["state"], job["exit_code"]) for job in queue.ls().values()}
    assert states == {"+x=fine": ("done", 0), "+x=raise": ("failed", 1), "+x=exit": ("failed", 7)}

    (queue.work / "train.py").write_text(PROGRAM.replace("raise LookupError", "print"))
    again = (
        "-m",
        LAUNCHER,
        "+x=fine,raise,exit",
        "hydra.sweep.dir=sweep",
        "hydra.launcher.resume=true",
    )
    ended = run(queue, *again)
    assert "1 of 3 jobs are done already" in ended.out
    assert "exit 7 (stoker log 5)" in ended.err
    calls = {path.name: len(path.read_text().split()) for path in queue.work.glob("calls-*")}
    assert calls == {"calls-fine": 1, "calls-raise": 2, "calls-exit": 2}


def test_a_resumed_sweep_waits_for_the_jobs_that_still_run(queue: Queue) -> None:
    write(queue)
    words = ("-m", LAUNCHER, "+x=wait", "hydra.sweep.dir=sweep")
    first = start(queue, *words)
    assert first.stdout is not None
    assert b"1 job in Stoker's queue" in first.stdout.readline()
    queue.until(lambda: (queue.work / "calls-wait").exists(), "the job runs")
    first.send_signal(signal.SIGINT)
    ended = queue.stoker.end(first)
    assert ended.code == 130
    assert ended.err == (
        "stoker: interrupted: 1 job (1) stays in the queue; to end it: stoker kill 1; to wait for it:"
        " the same command with hydra.sweep.dir=sweep hydra.launcher.resume=true\n"
    )
    refused = run(queue, *words)
    assert refused.code == 1
    assert refused.err.splitlines()[0] == (
        "stoker: job 1 of an earlier sweep in sweep is still in the queue: hydra.launcher.resume=true"
        " waits for it, stoker kill 1 ends it"
    )
    assert queue.states() == {1: "running"}
    second = start(queue, *words, "hydra.launcher.resume=true")
    assert second.stdout is not None
    assert b"1 job in Stoker's queue" in second.stdout.readline()
    (queue.work / "go").touch()

    assert queue.stoker.end(second).code == 0
    assert queue.states() == {1: "done"}


@pytest.mark.skipif(
    importlib.util.find_spec("hydra_plugins.hydra_optuna_sweeper") is None,
    reason="pip install --pre hydra-core hydra-optuna-sweeper",
)
def test_optunas_sweeper_asks_for_runs_in_batches(queue: Queue) -> None:
    write(queue, PROGRAM.replace("return 5", "return (cfg.x - 2) ** 2"))
    options = ("hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=2", "hydra.sweep.dir=sweep")
    ended = run(queue, "-m", LAUNCHER, "hydra/sweeper=optuna", "+x=interval(-5,5)", *options)

    assert ended.code == 0, ended
    assert set(queue.states().values()) == {"done"}
    assert len(queue.states()) == 4
    values = [each["value"] for each in json.loads(queue.ok("results", "sweep", "--json"))]
    found = (queue.work / "sweep/optimization_results.yaml").read_text()
    assert f"best_value: {min(values)}" in found


def test_a_foreground_sweep_needs_no_daemon(idle_queue: Queue) -> None:
    write(idle_queue)
    ended = run(idle_queue, "-m", LAUNCHER, "+x=1,2", "hydra.launcher.foreground=true")

    assert (ended.code, ended.err) == (0, ""), ended
    assert not (idle_queue.home / "stoker.db").exists()
    assert len(list(idle_queue.work.glob("multirun/*/*/*/log.txt"))) == 2


def test_an_interrupted_foreground_sweep_names_its_folder_and_goes_on(idle_queue: Queue) -> None:
    write(idle_queue)
    options = ("-m", LAUNCHER, "+x=fine,wait", "hydra.launcher.foreground=true")
    first = start(idle_queue, *options)
    idle_queue.until(lambda: (idle_queue.work / "calls-wait").exists(), "the second job runs")
    [folder] = [path.parent for path in idle_queue.work.glob("multirun/*/*/.stoker")]
    again = f"hydra.sweep.dir={folder.relative_to(idle_queue.work)}"
    refused = run(idle_queue, *options, again)
    assert refused.err.startswith("stoker: another program is running or submitting jobs of the")
    done = folder / ".stoker" / "0.result"
    idle_queue.until(done.exists, "the first job has succeeded")
    first.send_signal(signal.SIGINT)
    ended = idle_queue.stoker.end(first)

    assert ended.code == 130
    assert ended.err.endswith(f"the same command with {again} hydra.launcher.resume=true\n")
    assert "Traceback" not in ended.err
    (idle_queue.work / "go").touch()
    ended = run(idle_queue, *options, again, "hydra.launcher.resume=true")
    assert (ended.code, ended.err) == (0, ""), ended
    assert (idle_queue.work / "calls-fine").read_text() == "called\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "stoker: hydra/launcher=stoker is for sweeps: add -m (--multirun), or leave it out"),
        (
            ["-m", "+x=1,2", "hydra.launcher.gpus=9"],
            "stoker: the job asks for 9 GPUs, and this queue has 2: ask for fewer (hydra.launcher.gpus)",
        ),
        (
            ["-m", "+x=1,2", "hydra.launcher.timeout=9"],
            "stoker: hydra.launcher.timeout: '9' has no unit",
        ),
        (
            ["-m", "+x=1,2", "hydra.launcher.cpus=0"],
            "stoker: hydra.launcher.cpus 0: expected int >= 1",
        ),
        (
            ["-m", "+x=1,2", "hydra.launcher.devices=0"],
            "stoker: hydra.launcher.devices has an effect only with hydra.launcher.foreground=true",
        ),
        (["-m", "+x=1,2", "hydra.sweep.subdir=x"], "stoker: jobs 0 and 1 would both write to "),
        (["-m", "+x=1,2", "+lock=true"], "stoker: __main__.main of train: cannot pickle"),
    ],
)
def test_a_wrong_sweep_is_refused_in_one_line(queue: Queue, words: list[str], line: str) -> None:
    write(
        queue,
        "import hydra, sys, threading\n"
        "LOCK = threading.Lock() if '+lock=true' in sys.argv else None\n"
        "@hydra.main(version_base=None)\n"
        "def main(cfg):\n"
        "    return LOCK\n"
        "main()\n",
    )
    ended = run(queue, *words, LAUNCHER)

    assert ended.code == 1
    assert ended.err.splitlines()[0].startswith(line), ended
    assert "Traceback" not in ended.err
    assert queue.ls() == {}


def test_a_swept_file_that_sets_the_launcher_is_refused_in_one_line(queue: Queue) -> None:
    shutil.copytree(EXAMPLE, queue.work, dirs_exist_ok=True)
    folder = queue.work / "conf" / "model"
    folder.mkdir()
    (folder / "small.yaml").write_text("size: 1\n")
    (folder / "large.yaml").write_text("# @package _global_\nhydra:\n  launcher:\n    gpus: 2\n")
    ended = run(queue, "-m", "+model=small,large")

    assert ended.code == 1
    assert ended.err.startswith(
        "stoker: +model=large sets hydra.launcher.gpus, and all jobs of a sweep"
    )
    assert queue.ls() == {}
