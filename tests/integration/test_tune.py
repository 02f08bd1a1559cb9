"""Adaptive sweeps from the command line to the results, with the real daemon, Optuna and real processes."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

import optuna

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

SCRIPT = """
import sys, stoker
args = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
stoker.report(0, loss=(float(args["x"]) - 0.3) ** 2)
"""
COMMAND = f"{shlex.quote(sys.executable)} train.py {{args}}"


def _sweep(queue: Queue, *words: str, name: str = "s", runs: int = 6) -> str:
    queue.stoker.file("train.py", SCRIPT)
    space = ("x=uniform(0,1)", "--method", "tpe", "--minimize", "loss")
    return queue.ok("sweep", "--name", name, "-n", str(runs), "-g", "0", COMMAND, *space, *words)


def _trials(queue: Queue, name: str = "s") -> list[Any]:
    path = str(queue.work / "results" / name / "study.log")
    backend = optuna.storages.journal.JournalFileBackend(path)
    study = optuna.load_study(study_name=name, storage=optuna.storages.JournalStorage(backend))
    return study.get_trials()


def test_a_tpe_sweep_runs_to_its_end_and_its_study_has_the_results(queue: Queue) -> None:
    told = _sweep(queue)

    assert told == "sweep s: 6 runs, each chosen by the results so far, from job 1 on\n"
    queue.ok("wait", "-P", "s")
    assert list(queue.states().values()) == ["done"] * 6
    trials = _trials(queue)
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 6
    rows = json.loads(queue.ok("results", "s", "--columns", "job,x,loss", "--json"))
    known = {row["job"]: (row["x"], row["loss"]) for row in rows}
    assert {t.user_attrs["job"]: (t.params["x"], t.value) for t in trials} == known
