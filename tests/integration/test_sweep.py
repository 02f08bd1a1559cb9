"""Sweeps from the command line to the table, with the real daemon and real processes."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Stoker
    from integration.daemon_fixture import Queue

FAILING = 'sh -c "exit $(( {i} % 3 == 0 ))"'
TRAIN = f"{shlex.quote(sys.executable)} train.py {{args}}"
SCRIPT = """
import sys, stoker
args = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
for step in range(3):
    stoker.report(step, acc=float(args["lr"]) * 10 + int(args["seed"]) + step)
print("loss", args["lr"])
"""


def test_only_what_has_not_succeeded_runs_again(queue: Queue) -> None:
    queue.ok("config", "brake", "0")
    words = ("sweep", "--name", "mod", "-g", "0", FAILING, "i=range(9)")

    assert queue.ok(*words) == "sweep mod: 9 runs added, jobs 1-9\n"
    assert queue("wait", "--all").code == 1
    assert sorted(queue.states().values()) == ["done"] * 6 + ["failed"] * 3

    done = "6 of 9 runs are already done (--rerun all repeats them)"
    again = queue.ok(*words, "--rerun", "failed")
    assert again == f"sweep mod: 3 runs added, jobs 10-12; {done}\n"
    queue("wait")
    assert "3 runs added, jobs 13-15" in queue.ok(*words)
    queue("wait")
    failed = "3 of 9 runs failed before (--rerun failed repeats them)"
    none = queue.ok(*words, "--rerun", "none")
    assert none == f"sweep mod: nothing to run: {done}, {failed}\n"
    assert "9 runs added, jobs 16-24" in queue.ok(*words, "--rerun", "all")
    queue("wait")


def test_a_finished_sweep_runs_nothing_even_when_its_jobs_are_forgotten(queue: Queue) -> None:
    words = ("sweep", "-g", "0", "true {i}", "i=1,2")
    queue.ok(*words)
    queue.ok("wait")

    told = "nothing to run: 2 of 2 runs are already done (--rerun all repeats them)"
    assert queue.ok(*words) == f"sweep true: {told}\n"
    queue.ok("rm", "-s", "done")
    assert queue.states() == {}
    assert "nothing to run" in queue.ok(*words)
    assert "1 run added" in queue.ok("sweep", "-g", "0", "true {i}", "i=1,2,3")


def test_what_waits_or_runs_is_not_queued_twice(queue: Queue) -> None:
    words = ("sweep", "sleep {i}", "i=600,601,602,603")

    queue.ok(*words)
    assert "nothing to run: 4 of 4 runs are waiting or running\n" in queue.ok(*words)
    told = queue.ok(*words, "--rerun", "all")
    assert "nothing to run: 4 of 4 runs are waiting or running\n" in told
    assert len(queue.ls("-P", "sleep")) == 4


def test_a_run_has_its_folder_with_parameters_log_and_metrics(queue: Queue) -> None:
    queue.stoker.file("train.py", SCRIPT)
    queue.ok("sweep", "--name", "demo", "-g", "0", TRAIN, "lr=0.1,0.2", "seed=0,1")
    queue.ok("wait", "-P", "demo")

    folders = sorted((queue.work / "results" / "demo").glob("lr=*"))
    assert len(folders) == 4
    assert json.loads((folders[0] / "params.json").read_text()) == {"lr": 0.1, "seed": 0}
    assert (folders[0] / "log.txt").read_text() == "loss 0.1\n"
    assert queue.ok("log", "1") == "loss 0.1\n"
    assert len((folders[0] / "metrics.jsonl").read_text().splitlines()) == 3

    table = list(
        csv.DictReader(io.StringIO(queue.ok("results", "demo", "--csv", "--sort", "-acc")))
    )
    assert [row["lr"] for row in table] == ["0.2", "0.1", "0.2", "0.1"]
    assert queue.ok("results", "demo", "--over", "seed", "--md") == (
        "|  lr |             acc | runs | missing |\n"
        "| --: | --------------: | ---: | ------: |\n"
        "| 0.1 | 3.50 ± 0.71 (2) |    2 |       0 |\n"
        "| 0.2 | 4.50 ± 0.71 (2) |    2 |       0 |\n"
    )
    columns = "lr,seed,state,job,attempts,gpu_hours"
    first = queue.ok("results", "demo", "--columns", columns, "--json", "-n", "1")
    known = {"lr": 0.1, "seed": 0, "state": "done", "job": 1, "attempts": 1, "gpu_hours": 0}
    assert json.loads(first) == [known]
    one, other = (folder.name.rpartition("-")[2] for folder in folders[:2])
    assert "seed" in queue.ok("diff", f"demo/{one}", f"demo/{other}")


def test_odd_values_reach_the_program_unharmed_and_get_folders_of_their_own(queue: Queue) -> None:
    values = [
        "a b",
        "it's",
        '"',
        "$HOME; date",
        "new\nline",
        "日本",
        "x" * 40 + "1",
        "x" * 40 + "2",
    ]
    queue.stoker.file(
        "sweep.json", json.dumps({"command": "printf %s {v}", "parameters": {"v": values}})
    )

    queue.ok("sweep", "-f", "sweep.json", "-g", "0")
    queue.ok("wait")

    folders = list((queue.work / "results" / "sweep").glob("v=*"))
    assert len(folders) == len(values)
    for folder in folders:
        value = json.loads((folder / "params.json").read_text())["v"]
        assert (folder / "log.txt").read_text() == value
        values.remove(value)
    assert values == []


def test_failures_are_shown_with_reason_and_last_line(queue: Queue) -> None:
    queue.ok("sweep", "--name", "f", "-g", "0", "echo about to fail; exit {i}", "i=0,3")
    queue("wait")

    failed = json.loads(queue.ok("results", "f", "--failed", "--json"))

    (run,) = failed
    assert run.pop("run").startswith("i=3-")
    assert run == {
        "i": 3,
        "state": "failed",
        "job": 2,
        "reason": "exit 3",
        "last line": "about to fail",
    }


def test_a_dry_run_queues_nothing_and_knows_the_time_once_runs_have_ended(queue: Queue) -> None:
    words = ("sweep", "--name", "d", "-g", "0", "sleep 0.2 # {i}", "i=range(8)")
    first = queue.ok(*words, "--dry-run")

    assert first.startswith("sweep d: 8 runs\n  sleep 0.2 # 0\n")
    assert "  … 3 more\n" in first
    assert "time: not known before a run has succeeded" in first
    assert queue.states() == {}

    queue.ok(*words)
    queue.ok("wait")
    again = queue.ok(*words[:-1], "i=range(20)", "--dry-run")
    assert "20 runs; 8 of 20 runs are already done" in again
    assert "time: about " in again


def test_printed_commands_run_as_they_are(stoker: Stoker) -> None:
    def sweep(*words: str) -> bytes:
        ended = stoker.end(stoker.start("sweep", *words))
        assert ended.code == 0, ended
        return ended.stdout

    plain = sweep("echo {v} >> out", "v=1,'a b'", "--print")
    assert plain == b"echo 1 >> out\necho 'a b' >> out\n"
    assert stoker.run("--gpus", "0", lines=plain).code == 0
    assert stoker.read("out") == ["1", "a b"]
    odd = sweep("printf '[%s]' {v} >> odd", "v='a\nb'", "--print", "-0")
    assert stoker.run("--gpus", "0", "-0", lines=odd).code == 0
    assert stoker.read("odd") == ["[a", "b]"]
    refused = stoker.end(stoker.start("sweep", "echo {v}", "v='a\nb'", "--print"))
    assert (refused.code, refused.stdout) == (2, b"")
    assert "print with -0" in refused.err


def test_the_foreground_needs_no_daemon_and_goes_on_where_it_ended(stoker: Stoker) -> None:
    command = 'test {i} != 1 || test -e fine; echo ran {i} in "$STOKER_RUN_DIR" >> ran'
    words = ("sweep", f"({command}) && (test {{i}} != 1 || test -e fine)", "i=range(4)")
    here = ("--name", "here", "--foreground", "--slots", "0,1")

    first = stoker.end(stoker.start(*words, *here))
    assert first.code == 1, first
    assert len(stoker.read("ran")) == 4
    failed = stoker.end(stoker.start("results", "here", "--failed", "--json")).out
    assert [(row["i"], row["reason"]) for row in json.loads(failed)] == [(1, "exit 1")]
    stoker.file("fine", "")
    second = stoker.end(stoker.start(*words, *here))
    assert second.code == 0, second
    assert len(stoker.read("ran")) == 5
    folders = list((stoker.work / "results" / "here").glob("i=*"))
    assert len(folders) == 4
    assert all(str(folder) in "".join(stoker.read("ran")) for folder in folders)
    columns = ("--columns", "i,state,attempts,gpu", "--json", "--where", "i == 1")
    shown = stoker.end(stoker.start("results", "here", *columns)).out
    [known] = json.loads(shown)
    assert known.pop("gpu") in ("0", "1")
    assert known == {"i": 1, "state": "done", "attempts": 2}
    assert not os.path.exists(stoker.home / "stoker.sock")


def test_queue_and_foreground_know_what_the_other_has_done(queue: Queue) -> None:
    def words(values: str) -> tuple[str, ...]:
        return ("sweep", "--name", "both", "-g", "0", "echo {i} >> ran", f"i={values}")

    here = ("--foreground", "--slots", "0")
    queue.ok(*words("1,2"))
    queue.ok("wait")
    queue.ok(*words("1,2,3")[:3], *words("1,2,3")[5:], *here)
    assert "1 run added" in queue.ok(*words("1,2,3,4"))
    queue.ok("wait")

    assert sorted(queue.stoker.read("ran")) == ["1", "2", "3", "4"]
    nothing = queue.ok(*words("1,2")[:3], *words("1,2")[5:], *here)
    assert nothing.startswith("sweep both: nothing to run")


def test_two_submissions_at_once_queue_every_run_once(queue: Queue) -> None:
    words = ("sweep", "--name", "twice", "-g", "0", "true {i}", "i=range(300)")
    both = [queue.stoker.start(*words) for _ in range(2)]
    ends = [queue.stoker.end(process) for process in both]

    assert sorted(end.out.split(":")[1].split("(")[0].strip() for end in ends) == [
        "300 runs added, jobs 1-300",
        "nothing to run",
    ]
    queue.ok("wait")


def test_a_sweep_is_paused_after_so_many_failures_and_says_why(queue: Queue) -> None:
    queue.ok("config", "brake", "0")
    # Long enough that none is claimed in advance.
    line = "sleep 0.12; exit {i}"
    words = ("sweep", "--name", "bad", line, "i=1,2,3,4,5,6,7,8", "--max-failures", "2")
    queue.ok(*words)

    def paused() -> bool:
        return "project bad is paused" in queue.ok("status")

    queue.until(paused, "the sweep is paused")
    queue.until(lambda: "running" not in queue.states().values(), "what ran has ended")
    states = sorted(queue.states().values())
    assert states.count("failed") in (2, 3)  # one may have been running beside the second
    assert states[-1] == "waiting"
    assert "jobs failed, the last: exit" in queue.ok("status")
    refused = queue("sweep", "x {i}", "i=1", "--max-failures", "0")
    assert (refused.code, refused.err) == (2, "stoker: --max-failures 0: write 1 or more\n")


def test_a_foreground_sweep_starts_no_more_after_so_many_failures(stoker: Stoker) -> None:
    words = ("exit {i}", "i=1,2,3,4", "--name", "b", "--foreground", "--slots", "0")
    ended = stoker.end(stoker.start("sweep", *words, "--max-failures", "2"))

    assert ended.code == 1
    assert "2 commands failed: starting no more (--max-failures)" in ended.err
    assert "2 failed, the rest was not started" in ended.err


def test_mistakes_queue_nothing(queue: Queue) -> None:
    queue.stoker.file("bad.yaml", "command: x {lr}\nparamters: {lr: 1}\n")

    ended = queue("sweep", "-f", "bad.yaml")

    assert ended.code == 2
    assert ended.err == "stoker: bad.yaml:2: unknown key 'paramters': did you mean 'parameters'?\n"
    assert queue("sweep", "x {lr}", "lr=1,2", "-g", "9").code == 2
    assert queue("sweep", "x {lr}", "lr=1,2", "-t", "soon").code == 2
    assert queue("sweep").code == 2
    assert queue.states() == {}


def test_what_has_succeeded_is_known_also_after_the_daemon_was_stopped(queue: Queue) -> None:
    words = ("sweep", "-g", "0", "true {i}", "i=1,2")
    queue.ok(*words)
    queue.ok("wait")
    queue.ok("daemon", "stop")

    told = "nothing to run: 2 of 2 runs are already done (--rerun all repeats them)"
    assert queue.ok(*words) == f"sweep true: {told}\n"


def test_the_first_sweep_starts_the_daemon(idle_queue: Queue) -> None:
    assert "2 runs added, jobs 1-2" in idle_queue.ok("sweep", "-g", "0", "true {i}", "i=1,2")
    idle_queue.ok("wait")
    assert set(idle_queue.states().values()) == {"done"}


def test_a_wandb_file_runs_unchanged(queue: Queue) -> None:
    queue.stoker.file("train.py", "import sys\nprint(sys.argv[1:])\n")
    queue.stoker.file(
        "wandb.yaml",
        f"""
program: train.py
method: grid
metric: {{name: loss, goal: minimize}}
parameters:
  lr: {{values: [0.1, 0.2]}}
  optimizer:
    parameters:
      name: {{value: adam w}}
command: [{sys.executable}, "${{program}}", "${{args}}"]
""",
    )

    queue.ok("sweep", "-f", "wandb.yaml", "-g", "0")
    queue.ok("wait")

    assert queue.ok("log", "1") == "['--lr=0.1', '--optimizer.name=adam w']\n"
    assert queue.ok("log", "2") == "['--lr=0.2', '--optimizer.name=adam w']\n"


# What wandb.init() does with the variable: it fills wandb.config.
READ_CONFIG = """
import os
from ruamel.yaml import YAML
with open(os.environ["WANDB_SWEEP_PARAM_PATH"]) as file:
    config = YAML(typ="safe", pure=True).load(file)
print({name: entry["value"] for name, entry in config.items()})
"""
WITHOUT_ARGUMENTS = f"""
program: config.py
method: grid
parameters:
  lr: {{values: [0.1, 0.2]}}
  opt: {{parameters: {{name: {{value: adam}}}}}}
command: [{sys.executable}, "${{program}}"]
"""


@pytest.mark.parametrize("warm", ["never", "json"])
def test_runs_of_a_wandb_file_find_their_parameters_without_arguments(
    queue: Queue, warm: str
) -> None:
    queue.stoker.file("config.py", READ_CONFIG)
    queue.stoker.file("wandb.yaml", WITHOUT_ARGUMENTS)

    queue.ok("sweep", "wandb.yaml", "-g", "0", "--warm", warm)
    queue.ok("wait")

    logs = [queue.ok("log", job) for job in ("1", "2")]
    assert logs == [f"{{'lr': {lr}, 'opt': {{'name': 'adam'}}}}\n" for lr in (0.1, 0.2)]


def test_so_do_runs_in_the_foreground(idle_queue: Queue) -> None:
    idle_queue.stoker.file("config.py", READ_CONFIG)
    idle_queue.stoker.file("wandb.yaml", WITHOUT_ARGUMENTS)

    idle_queue.ok("sweep", "wandb.yaml", "--foreground", "--slots", "0", "--warm", "never")

    logs = sorted(path.read_text() for path in idle_queue.work.rglob("log.txt"))
    assert logs == [f"{{'lr': {lr}, 'opt': {{'name': 'adam'}}}}\n" for lr in (0.1, 0.2)]

    again = idle_queue("sweep", "--foreground", "--slots", "0", "wandb.yaml", "lr=0.1,0.2,0.3")
    printed = idle_queue("sweep", "wandb.yaml", "--print")

    assert again.code == 0
    assert len(list(idle_queue.work.rglob("log.txt"))) == 3
    assert "all lines would be the same" in printed.err


def test_a_sweep_of_sync_runs_the_code_of_its_submission_and_fills_the_folders_of_its_runs(
    queue: Queue,
) -> None:
    queue.stoker.file("train.sh", "cp train.sh $1/seen; pwd > $STOKER_RUN_DIR/where; echo > waste")
    queue.add("-g", "2", "while [ ! -e go ]; do sleep 0.01; done")
    queue.ok("sweep", "--sync", "--name", "s", "sh train.sh {dir} {i}", "i=1,2")
    queue.stoker.file("train.sh", "exit 1")
    (queue.work / "go").touch()

    queue.ok("wait")

    seen = [path.read_text()[:2] for path in queue.work.rglob("seen")]
    assert seen == ["cp", "cp"]
    places = {path.read_text() for path in queue.work.rglob("where")}
    assert len(places) == 2
    assert not (queue.work / "waste").exists()
    assert "comes back" in queue.ok("show", "@")


def test_results_say_which_runs_did_not_succeed_and_leave_them_out_of_means(queue: Queue) -> None:
    line = f"""{shlex.quote(sys.executable)} -c '
import stoker, sys
stoker.report(0, loss={{seed}})
sys.exit({{seed}} == 2)' {{lr}}"""
    queue.ok("sweep", "--name", "half", "-g", "0", line, "seed=0,1,2", "lr=1,2")
    assert queue("wait", "--all").code == 1

    ended = queue("results", "half", "--over", "seed")
    assert [each.split() for each in ended.out.splitlines()[1:]] == [
        ["1", "0.50", "±", "0.71", "(2)", "3", "1"],
        ["2", "0.50", "±", "0.71", "(2)", "3", "1"],
    ]
    told = "stoker: 2 of 6 runs did not succeed (2 failed)"
    assert ended.err == f"{told}: no mean counts them; --failed tells why\n"
    assert queue("results", "half").err == f"{told}: --failed tells why\n"
    assert queue("results", "half", "--where", "state == 'done'").err == ""
    assert queue("results", "half", "--failed").err == ""

    plotted = queue("plot", "half", "--y", "loss", "--save", "half.svg")
    assert plotted.err == "stoker: left out: 2 failed (--all draws them too)\n"
    assert plotted.out == f"saved {queue.work / 'half.svg'}\n"
    assert queue("plot", "half", "--y", "loss", "--all", "--save", "half.svg").err == ""

    there = queue.work / "there"
    there.mkdir()
    ended = queue.stoker.end(queue.stoker.start("results", "half", "--json", cwd=there))
    states = [run["state"] for run in json.loads(ended.out)]
    assert sorted(states) == ["done"] * 4 + ["failed"] * 2
    root = queue.work / "results" / "half"
    assert ended.err == f"stoker: results in {root}\n{told}: --failed tells why\n"

    queue.ok("daemon", "stop")
    ended = queue("results", "half", "--over", "seed")
    assert "no daemon is running, so failed runs count too: stoker daemon start" in ended.err
    ended = queue.stoker.end(queue.stoker.start("results", "half", cwd=there))
    assert ended.err.endswith(
        "; or start the daemon, which knows other folders: stoker daemon start\n"
    )


def test_the_results_of_a_run_without_parameters_are_its_name_and_state(queue: Queue) -> None:
    queue.ok("sweep", "--name", "bare", "-g", "0", "true")
    queue.ok("wait")

    lines = [line.split() for line in queue.ok("results", "bare").splitlines()]

    assert lines[0] == ["run", "state"]
    assert lines[1][1] == "done"
    (run,) = json.loads(queue.ok("results", "bare", "--json"))
    assert run == {"run": f"run-{lines[1][0]}", "state": "done"}


def test_a_file_without_f_is_read_as_a_sweep_file(queue: Queue) -> None:
    queue.stoker.file("net.yaml", "command: true {lr}\nparameters: {lr: [1, 2]}\n")

    assert queue.ok("sweep", "net.yaml", "-g", "0") == "sweep net: 2 runs added, jobs 1-2\n"
    shown = queue.ok("sweep", "net.yaml", "lr=3", "--name", "other", "--dry-run")
    assert "sweep other: 1 run\n  true 3\n" in shown
    ended = queue("sweep", "missing.yml")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "stoker: cannot read missing.yml: No such file or directory\n"
    ended = queue("sweep", "-f", "net.yaml", "net.yaml")
    assert ended.code == 2
    assert set(queue.states()) == {1, 2}


def test_parameters_without_a_command_queue_nothing(queue: Queue) -> None:
    ended = queue("sweep", "lr=1,2", "bs=3")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "stoker: 'lr=1,2' is a parameter, but the command is missing:"
        " stoker sweep 'python t.py --lr {lr}' lr=1,2\n"
    )
    assert queue.states() == {}


def test_results_tell_that_the_metric_of_the_sweep_was_not_reported(queue: Queue) -> None:
    (queue.work / "t.py").write_text("import stoker\nstoker.report(val_acc=1)\n")
    queue.ok("sweep", f"{sys.executable} t.py {{x}}", "x=1", "--maximize", "val_ac", "-g0")
    queue.ok("wait")

    assert queue("results", "t").err == (
        "stoker: the metric of this sweep: no run has reported val_ac: they reported val_acc:"
        " did you mean 'val_acc'?\n"
    )


def test_that_no_run_failed_is_told_as_that(queue: Queue) -> None:
    queue.ok("sweep", "--name", "fine", "-g", "0", "true {i}", "i=1,2")
    queue.ok("wait", "-P", "fine")

    assert queue("results", "fine", "--failed") == (0, b"", b"no run failed\n")
    assert queue("results", "fine", "--where", "i > 5") == (0, b"", b"no run matches\n")


def test_a_negative_priority_is_taken(queue: Queue) -> None:
    queue.ok("sweep", "-p", "-5", "-g", "0", "true {i}", "i=1")

    assert queue.show(1)["priority"] == -5
    assert "-n" in queue("sweep", "true {i}", "i=1", "-n", "--dry-run").err
    ended = queue("sweep", "true {i}", "i=1", "--retries", "-1")
    assert (ended.code, ended.err) == (2, "stoker: --retries -1: write 0 or more\n")


def test_runs_are_preempted_and_ended_as_their_sweep_says(queue: Queue) -> None:
    options = ("--preemptible", "--checkpoint", "lightning", "--grace", "7s")
    queue.ok("sweep", "sleep {s}", "s=1000", *options)
    found = queue.show(1)["options"]

    assert found["preemptible"]
    assert found["signal_main"], "--checkpoint signals the main process alone"
    assert found["grace_s"] == 7


def test_preemption_is_refused_in_the_foreground(idle_queue: Queue) -> None:
    ended = idle_queue("sweep", "true {s}", "s=1", "--foreground", "--signal", "USR2")

    assert ended.code == 2
    assert ended.err.startswith("stoker: --preemptible, --preempt, --checkpoint, --signal and")


def test_a_sweep_that_joins_the_folder_of_another_one_says_so(queue: Queue) -> None:
    def note(*words: str) -> str:
        ended = queue("sweep", "--name", "s", *words)
        assert ended.code == 0, ended
        return "".join(line for line in ended.err.splitlines() if "keeps sweeps apart" in line)

    assert note("sh t.sh {x}", "x=1,2", "-g0") == ""
    assert note("sh t.sh {x}", "x=1,2,3", "-g0") == "", "the same sweep, with more values"
    told = note("sh t.sh {x} {y}", "x=1,2", "y=3", "-g0")
    assert told.startswith(
        f"stoker: {queue.work}/results/s also has the runs of an earlier sweep of"
    )
    assert "'sh t.sh {x}': results shows them together; --name NAME keeps sweeps apart" in told
    queue.ok("sweep", "sh t.sh {args}", "y=3", "-g0", "--name", "t")
    ended = queue("sweep", "sh t.sh {args}", "z=3", "-g0", "--name", "t", "--dry-run")
    assert "the runs of an earlier sweep over y: " in ended.err
