from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

TRAIN = """
import json, os, signal, sys, time

STEPS, SAVE_EVERY = 120, 10
path = os.path.join(os.environ["STOKER_CHECKPOINT_DIR"], "state.json")
state = {"step": 0, "value": 1}
if os.path.exists(path):
    with open(path) as file:
        state = json.load(file)

def save():
    with open(path + ".new", "w") as file:
        json.dump(state, file)
    os.replace(path + ".new", path)

def leave(*_):
    save()
    sys.exit(1)

signal.signal(signal.SIGTERM, leave)
print("attempt", os.environ["STOKER_ATTEMPT"], "from", state["step"], flush=True)
while state["step"] < STEPS:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    state["value"] = state["value"] * 31 % 1000003
    state["step"] += 1
    print("step", state["step"], flush=True)
    if state["step"] % SAVE_EVERY == 0:
        save()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    time.sleep(0.01)
    # Two attempts wait to be preempted, however long that takes.
    attempt = int(os.environ["STOKER_ATTEMPT"])
    while "wait" in sys.argv and attempt < 3 and state["step"] >= 40 * attempt:
        time.sleep(0.01)
print("result", state["value"], flush=True)
"""


def steps(queue: Queue, attempt: int) -> list[int]:
    lines = queue.ok("log", "--attempt", str(attempt), "train").splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("step")]


def until_attempt(queue: Queue, number: int) -> None:
    queue.until(lambda: queue.show("train")["attempt"] == number, f"attempt {number}")


def until_steps(queue: Queue, attempt: int) -> None:
    queue.until(lambda: len(steps(queue, attempt)) > 15, "some steps")


def test_a_training_that_is_preempted_twice_ends_with_the_same_result(queue: Queue) -> None:
    queue.stoker.file("train.py", TRAIN)
    queue.add("-N", "plain", sys.executable, "train.py")
    queue.add("-N", "train", sys.executable, "train.py", "wait")
    for attempt in (1, 2):
        until_attempt(queue, attempt)
        until_steps(queue, attempt)
        assert queue.ok("preempt", "train") == "making room: job 2\n"
        until_attempt(queue, attempt + 1)
    assert queue("wait").code == 0

    results = [queue.ok("log", name).splitlines()[-1] for name in ("plain", "train")]
    assert results[0] == results[1]
    attempts = queue.show("train")["attempts"]
    assert [each["state"] for each in attempts] == ["preempted", "preempted", "done"]
    assert [each["reason"] for each in attempts[:2]] == ["preempted by request"] * 2
    first, second, third = (steps(queue, attempt) for attempt in (1, 2, 3))
    # It saves when it is told to leave: not a step is made twice.
    assert first + second + third == list(range(1, 121))


def test_the_script_in_the_docs_continues_from_its_checkpoint(queue: Queue) -> None:
    text = (Path(__file__).parents[2] / "docs/how-to/preempt.md").read_text()
    script = text.partition("```python\n")[2].partition("```")[0]
    quick = script.replace("< 1000", "< 500").replace("sleep(0.05)", "sleep(0.01)")
    assert quick.count("500") == quick.count("(0.01)") == 1
    queue.stoker.file("train.py", quick)
    for name in ("plain", "train"):
        queue.add("-N", name, sys.executable, "train.py")
    queue.until(lambda: "begins at step 0" in queue.ok("log", "train"))
    queue.ok("preempt", "train")
    assert queue("wait").code == 0

    done = [queue.ok("log", name).splitlines()[-1] for name in ("plain", "train")]
    assert done[0] == done[1]
    assert [each["state"] for each in queue.show("train")["attempts"]] == ["preempted", "done"]


def test_a_preempting_job_pushes_out_preemptible_jobs(queue: Queue) -> None:
    for number in (1, 2):
        queue.add("--preemptible", "while [ ! -e go ]; do sleep 0.02; done")
        queue.until_running(number)
    queue.add("--preempt", "-g", "2", "echo urgent")
    queue.ok("wait", "3")
    (queue.work / "go").touch()
    queue.ok("wait")

    for number in (1, 2):
        attempts = queue.show(number)["attempts"]
        assert [each["state"] for each in attempts] == ["preempted", "done"]
        assert attempts[0]["reason"] == "preempted by job 3"


def test_a_time_limit_with_requeue_takes_turns(queue: Queue) -> None:
    line = "echo $STOKER_ATTEMPT >> {}; [ $STOKER_ATTEMPT -lt 3 ] && sleep 60; true"
    for name in ("a", "b"):
        queue.add("-g", "2", "-t", "1s", "--requeue", line.format(name))
    assert queue("wait").code == 0

    assert queue.stoker.read("a") == queue.stoker.read("b") == ["1", "2", "3"]


def test_a_jobs_own_signal_and_grace_time_are_used(queue: Queue) -> None:
    line = "trap 'echo asked' USR1; echo ready; while :; do sleep 0.02; done"
    job = queue.add("--signal", "USR1", "--grace", "1s", line)
    queue.until(lambda: queue.ok("log", "@") == "ready\n")
    queue.ok("preempt", "@")
    queue.until(lambda: queue.show(job)["attempt"] == 2)

    assert queue.ok("log", "--attempt", "1", "@").endswith("asked\n")


def test_preempt_refuses_a_job_that_does_not_run(queue: Queue) -> None:
    queue.add("--hold", "true")

    assert queue("preempt", "1").err == "stoker: job 1 is held: only what runs can be preempted\n"
    assert queue.ok("preempt", "--all") == "nothing runs\n"
