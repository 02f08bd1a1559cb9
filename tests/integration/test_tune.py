"""Sweeps that are steered while they run, with the real daemon, Optuna and real processes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import signal
import sys
from typing import TYPE_CHECKING, Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend

from scale import LONG
from stoker.supervisor import process_tree

if TYPE_CHECKING:
    from pathlib import Path

    from integration.daemon_fixture import Queue

SCRIPT = """
import sys, stoker
args = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
stoker.report(0, loss=(float(args["x"]) - 0.3) ** 2, cost=float(args["x"]))
"""
# A run of level 0 is good and ends; the others go on until they are stopped.
LEVELS = """
import os, sys, time, stoker
level = float(sys.argv[1].partition("=")[2])
for step in range(100000):
    if stoker.report(step, loss=level) and "--deaf" not in sys.argv:
        print("was asked to stop")
        break
    if level == 0 and step == 5:
        break
    time.sleep(0.02)
"""
TABLE = """
import os, sys, time
level = float(sys.argv[1].partition("=")[2])
with open(os.environ["STOKER_RUN_DIR"] + "/metrics.csv", "w", buffering=1) as file:
    print("step,loss", file=file)
    for step in range(100000):
        print(step, level, sep=",", file=file)
        if level == 0 and step == 5:
            break
        time.sleep(0.02)
"""
PYTHON = shlex.quote(sys.executable)
COMMAND = f"{PYTHON} train.py {{args}}"


def _sweep(queue: Queue, *words: str, name: str = "s", runs: int = 6) -> str:
    queue.stoker.file("train.py", SCRIPT)
    space = ("x=uniform(0,1)", "--method", "tpe", "--minimize", "loss")
    return queue.ok("sweep", "--name", name, "-n", str(runs), "-g", "0", COMMAND, *space, *words)


def _trials(work: Path, name: str = "s") -> list[Any]:
    path = str(work / "results" / name / "study.log")
    storage = optuna.storages.JournalStorage(JournalFileBackend(path))
    study = optuna.load_study(study_name=name, storage=storage)
    return study.get_trials()


def _controllers(queue: Queue) -> list[int]:
    """The pids of the controllers of a queue."""
    mark = f"steer\0{queue.home}".encode()
    found = []
    for pid in process_tree.processes():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if mark in file.read():
                    found.append(pid)
        except OSError:
            continue
    return found


def test_a_tpe_sweep_runs_to_its_end_and_goes_on_with_more_runs(queue: Queue) -> None:
    told = _sweep(queue)

    assert told == "sweep s: 6 runs, each chosen by the results so far, from job 1 on\n"
    queue.ok("wait", "-P", "s")
    assert list(queue.states().values()) == ["done"] * 6
    trials = _trials(queue.work)
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 6
    rows = json.loads(queue.ok("results", "s", "--columns", "job,x,loss", "--json"))
    known = {row["job"]: (row["x"], row["loss"]) for row in rows}
    assert {t.user_attrs["job"]: (t.params["x"], t.value) for t in trials} == known

    nothing = _sweep(queue)
    assert nothing == "sweep s: nothing to run; 6 have ended before (a greater -n adds runs)\n"
    more = _sweep(queue, runs=8)
    assert more == (
        "sweep s: 2 runs, each chosen by the results so far, from job 7 on; 6 have ended before\n"
    )
    queue.ok("wait")
    assert len(queue.states()) == 8
    assert _controllers(queue) == []


def test_waiting_without_names_waits_for_runs_that_are_to_come(queue: Queue) -> None:
    queue.stoker.file("train.py", "import sys\nsys.exit(1)\n")
    space = ("x=uniform(0,1)", "--method", "tpe", "--minimize", "loss")
    queue.ok("config", "brake", "0")
    queue.ok("sweep", "--name", "bad", "-n", "4", "-g", "0", COMMAND, *space)

    ended = queue("wait")

    assert ended.code == 1
    assert "4 failed" in ended.err
    assert [trial.state.name for trial in _trials(queue.work, "bad")] == ["FAIL"] * 4
    # What has failed is replaced by other runs when the sweep is submitted again.
    again = queue.ok("sweep", "--name", "bad", "-n", "4", "-g", "0", COMMAND, *space)
    assert "4 runs" in again


@pytest.mark.parametrize("point", ["trial-asked", "trial-queued", "trial-told"])
def test_a_controller_killed_at_any_point_loses_no_run_and_doubles_none(
    idle_queue: Queue, point: str
) -> None:
    mark = idle_queue.work / "killed"
    idle_queue.env["STOKER_FAILPOINT"] = f"{point}:3:{mark}"
    idle_queue.start()

    _sweep(idle_queue, runs=7)
    idle_queue.ok("wait", "-P", "s")

    assert mark.exists()
    trials = _trials(idle_queue.work)
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 7
    assert [trial.user_attrs["job"] for trial in trials] == list(range(1, 8))
    assert list(idle_queue.states().values()) == ["done"] * 7


def test_a_sweep_goes_on_after_its_daemon_and_its_controller_were_killed(queue: Queue) -> None:
    queue.stoker.file("go", "")
    wait = f"while [ ! -e go ]; do sleep 0.01; done; {COMMAND}"
    queue.stoker.file("train.py", SCRIPT)
    space = ("x=uniform(0,1)", "--method", "tpe", "--minimize", "loss")
    (queue.work / "go").unlink()
    queue.ok("sweep", "--name", "s", "-n", "6", wait, *space)
    queue.until_running(1)
    [pid] = _controllers(queue)

    os.kill(pid, signal.SIGKILL)
    queue.until(lambda: set(_controllers(queue)) - {pid}, "another controller runs")
    queue.kill_daemon()
    queue.until(lambda: not _controllers(queue), "the controller has gone with its daemon")
    (queue.work / "go").touch()

    queue.ok("wait", "-P", "s")
    assert list(queue.states().values()) == ["done"] * 6
    assert [trial.state.name for trial in _trials(queue.work)] == ["COMPLETE"] * 6


def test_controllers_killed_at_random_moments_lose_no_trial_and_tell_none_twice(
    queue: Queue,
) -> None:
    seed = random.randrange(1 << 30)
    draw, runs = random.Random(seed), 40 if LONG else 10
    _sweep(queue, runs=runs)
    log = queue.work / "results" / "s" / "study.log"

    def is_over() -> bool:
        return list(queue.states().values()).count("done") == runs

    for kill in range(8 if LONG else 2):
        mark = log.stat().st_size + draw.randrange(6000)
        queue.until(
            lambda mark=mark: log.stat().st_size >= mark or is_over(),  # type: ignore[misc]
            f"the study grows (seed {seed})",
        )
        for pid in _controllers(queue):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if kill % 4 == 3:
            queue.kill_daemon()
            queue.ok("daemon", "start")

    queue.ok("wait", "-P", "s")

    trials = _trials(queue.work)
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * runs, seed
    assert sorted(trial.user_attrs["job"] for trial in trials) == list(range(1, runs + 1)), seed
    assert list(queue.states().values()) == ["done"] * runs, seed
    entries = map(json.loads, log.read_text().splitlines())
    told = [entry["trial_id"] for entry in entries if entry.get("values")]
    assert sorted(told) == list(range(runs)), seed


def test_killing_the_jobs_of_a_sweep_ends_the_sweep(queue: Queue) -> None:
    space = ("x=uniform(0,1)", "--method", "tpe", "--minimize", "loss")
    queue.ok("sweep", "--name", "t", "-n", "50", "sleep 600 # {x}", *space)
    queue.until(lambda: list(queue.states().values()).count("running") == 2, "two runs go on")
    queue.until(lambda: len(queue.states()) == 3, "one run waits")

    queue.ok("kill", "-P", "t")

    assert queue("wait", "-P", "t").code == 1
    assert {trial.state.name for trial in _trials(queue.work, "t")} == {"FAIL"}
    assert len(queue.states()) == 3


def test_several_metrics_make_several_objectives(queue: Queue) -> None:
    _sweep(queue, "--maximize", "cost")
    queue.ok("wait", "-P", "s")

    trials = _trials(queue.work)
    assert all(t.values == [(t.params["x"] - 0.3) ** 2, t.params["x"]] for t in trials)
    assert len(trials) == 6


def test_a_sweep_ends_when_a_run_reaches_the_target(queue: Queue) -> None:
    queue.stoker.file("train.py", SCRIPT)
    queue.stoker.file(
        "t.yaml",
        f"""
command: {COMMAND}
method: bayes
run_cap: 100
metric: {{name: loss, target: 0.05}}
parameters: {{x: {{min: 0.0, max: 1.0}}}}
resources: {{gpus: 0}}
""",
    )

    queue.ok("sweep", "t.yaml")
    waited = queue("wait", "-P", "t")
    assert waited.code == 0
    assert waited.err.startswith("stoker: sweep t begins no more runs: loss ")
    assert waited.err.endswith(" reaches the target 0.05\n")

    states = list(queue.ls("-P", "t", "-a").values())
    assert len(states) < 100
    assert {job["state"] for job in states} <= {"done", "pruned"}
    best = min(trial.value for trial in _trials(queue.work, "t") if trial.value is not None)
    assert best <= 0.05
    again = queue.ok("sweep", "t.yaml")
    assert "nothing to run" in again


def test_runs_worse_than_others_are_stopped_and_are_pruned(queue: Queue) -> None:
    queue.stoker.file("train.py", LEVELS)
    queue.stoker.file(
        "h.yaml",
        f"""
command: {COMMAND}
metric: {{name: loss}}
early_terminate: {{type: hyperband, max_iter: 12, s: 1, eta: 4}}
parameters: {{level: [0, 1, 2]}}
resources: {{gpus: 0}}
""",
    )

    queue.ok("sweep", "h.yaml")
    queue.ok("wait", "-P", "h")

    assert queue.states() == {1: "done", 2: "pruned", 3: "pruned"}
    assert queue.ok("log", "2") == "was asked to stop\n"
    reason = queue.show(2)["reason"]
    assert reason.startswith("loss 1 is worse than the best 1/4 of the runs at iteration 3 ")
    table = queue.ok("results", "h", "--columns", "level,state", "--csv").split()
    assert sorted(table[1:]) == ["0,done", "1,pruned", "2,pruned"]
    told = "1 of 3 runs are already done (--rerun all repeats them)"
    stopped = "2 of 3 runs were stopped early (--rerun all repeats them)"
    assert queue.ok("sweep", "h.yaml") == f"sweep h: nothing to run: {told}, {stopped}\n"


def test_a_run_that_does_not_stop_by_itself_gets_a_signal(queue: Queue) -> None:
    queue.stoker.file("train.py", LEVELS)
    queue.stoker.file(
        "m.yaml",
        f"""
command: {PYTHON} train.py {{args}} --deaf
metric: loss
early_terminate: {{type: median, min_runs: 1, grace: 1s}}
parameters: {{level: [0, 1]}}
resources: {{gpus: 0}}
""",
    )

    queue.ok("sweep", "m.yaml")
    queue.ok("wait", "-P", "m")

    assert queue.states() == {1: "done", 2: "pruned"}
    assert queue.show(2)["attempts"][-1]["signal"] == signal.SIGTERM


def test_runs_that_only_write_a_table_are_stopped_and_found_by_it(queue: Queue) -> None:
    queue.stoker.file("train.py", TABLE)
    queue.stoker.file(
        "c.yaml",
        f"""
command: {COMMAND}
metric: {{name: loss}}
early_terminate: {{type: median, min_runs: 1, grace: 1s}}
parameters: {{level: [0, 1]}}
resources: {{gpus: 0}}
""",
    )

    queue.ok("sweep", "c.yaml")
    queue.ok("wait", "-P", "c")

    assert queue.states() == {1: "done", 2: "pruned"}
    assert queue.show(2)["reason"].startswith("loss 1 is worse than the median of the runs")
    table = queue.ok("results", "c", "--columns", "level,loss,state", "--csv").split()
    assert table[1:] == ["0,0,done", "1,1,pruned"]


def test_asha_prunes_trials_of_tpe(queue: Queue) -> None:
    queue.stoker.file("train.py", LEVELS)
    queue.stoker.file(
        "a.yaml",
        f"""
command: {COMMAND}
method: tpe
samples: 8
metric: loss
early_terminate: {{type: asha, min_iter: 2, eta: 2}}
parameters: {{level: [0, 1]}}
resources: {{gpus: 0}}
""",
    )

    queue.ok("sweep", "a.yaml")
    queue.ok("wait", "-P", "a")

    by_job = {trial.user_attrs["job"]: trial for trial in _trials(queue.work, "a")}
    words = {"done": "COMPLETE", "pruned": "PRUNED"}
    states = queue.states()
    assert {job: trial.state.name for job, trial in by_job.items()} == {
        job: words[state] for job, state in states.items()
    }
    assert "pruned" in states.values()


def test_a_bad_order_queues_nothing_and_leaves_the_earlier_one(queue: Queue) -> None:
    _sweep(queue)
    queue.ok("wait")

    other = queue(
        "sweep",
        "--name",
        "s",
        "-n",
        "9",
        "-g",
        "0",
        COMMAND,
        "x=uniform(0,2)",
        *("--method", "tpe", "--minimize", "loss"),
    )

    assert other.code == 2
    assert other.err == (
        f"stoker: {queue.work}/results/s/study.log belongs to a sweep with other parameters: give this"
        " sweep another name (--name), or move the file away\n"
    )
    for words, told in (
        (("--rerun", "all"), "a sweep of this method goes on with new runs"),
        (("--print",), "depend on the results of earlier runs"),
    ):
        ended = queue(
            "sweep",
            "-n",
            "9",
            COMMAND,
            "x=uniform(0,1)",
            "--method",
            "tpe",
            "--minimize",
            "loss",
            *words,
        )
        assert (ended.code, told in ended.err) == (2, True)
    assert len(queue.states()) == 6
