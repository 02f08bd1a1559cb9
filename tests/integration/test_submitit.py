"""submitit's calls on Stoker's queue."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import submitit

from integration.calls import Waits, fail, power
from stoker.errors import StokerError
from stoker.integrations.submitit_executor import StokerExecutor, StokerJob

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

EXAMPLE = Path(__file__).parents[2] / "examples" / "submitit" / "train.py"


@pytest.fixture
def executor(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return submitit's executor for the queue of this test."""
    for name in ("STOKER_HOME", "STOKER_LEASE_DIR"):
        monkeypatch.setenv(name, queue.env[name])
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE.parents[2] / "tests"))  # for integration.calls
    monkeypatch.chdir(queue.work)
    StokerJob.watcher.clear()  # it knows the jobs of earlier tests, which had the same ids
    return submitit.AutoExecutor(queue.work / "log", cluster="stoker")


def test_the_example_goes_on_after_a_preemption(queue: Queue) -> None:
    shutil.copy(EXAMPLE, queue.work)
    process = queue.stoker.adopt(
        subprocess.Popen(
            [sys.executable, "train.py", "--steps", "300"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=queue.env,
            cwd=queue.work,
        )
    )
    queue.until(lambda: "step 50" in queue("log", "1").out, "the first job works")
    queue.ok("preempt", "1")
    ended = queue.stoker.end(process)

    assert (ended.code, ended.err) == (0, ""), ended
    assert ended.out == "job 1: lr 0.01, loss 0.049\njob 2: lr 0.001, loss 0.741\n"
    assert [each["state"] for each in queue.show(1)["attempts"]] == ["preempted", "done"]
    starts = [line for line in queue.ok("log", "1").splitlines() if "from step" in line]
    assert len(starts) == 2
    assert "from step 0 " not in starts[1]


def test_a_map_is_one_submission_whose_jobs_have_gpus_and_options(
    queue: Queue, executor: Any
) -> None:
    executor.update_parameters(
        name="power",
        timeout_min=90,
        mem_gb=0.5,
        cpus_per_task=1,
        stoker_priority=4,
        stoker_project="p",
    )
    jobs = executor.map_array(power, [2, 3], [5, 2])

    (first, gpu), (second, _other) = [job.result() for job in jobs]
    assert (first, second) == (32, 9)
    assert gpu in ("0", "1")
    assert f"on {gpu}" in jobs[0].stdout()
    assert "on " in jobs[0].stderr()
    found = queue.show(1)
    assert (found["name"], found["project"], found["priority"]) == ("power", "p", 4)
    assert (found["timeout_s"], found["mem_bytes"], found["cpus"]) == (5400, 2**29, 1)
    queue.until(
        lambda: {job.state for job in jobs} == {"COMPLETED"}, "submitit knows that they are over"
    )


def test_an_exception_of_a_call_is_told_and_its_job_fails(queue: Queue, executor: Any) -> None:
    job = executor.submit(fail, "no such thing")

    with pytest.raises(submitit.core.utils.FailedJobError, match="no such thing"):
        job.result()
    queue.until(lambda: queue.states() == {1: "failed"}, "its process has ended")
    assert queue.show(1)["reason"] == "exit 1: LookupError: no such thing"


def test_a_checkpointed_call_waits_again_after_a_preemption_and_after_a_signal_of_others(
    queue: Queue, executor: Any
) -> None:
    job = executor.submit(Waits(queue.work))
    queue.until(lambda: (queue.work / "began-0").exists(), "it runs")
    job._interrupt()
    queue.until(lambda: (queue.work / "began-1").exists(), "it runs again")
    os.kill(queue.show(1)["attempts"][-1]["pid"], signal.SIGUSR2)
    queue.until(lambda: (queue.work / "began-2").exists(), "it has put itself into the queue")
    (queue.work / "go").touch()

    assert job.result() == 2


def test_a_cancelled_call_is_killed_and_has_no_result(queue: Queue, executor: Any) -> None:
    job = executor.submit(Waits(queue.work))
    queue.until(lambda: (queue.work / "began-0").exists(), "it runs")
    job.cancel()
    job.wait()

    assert queue.states() == {1: "killed"}
    assert "this job was killed by request" in job.stdout()
    assert "preempted" not in job.stdout()
    assert isinstance(job.exception(), submitit.core.utils.UncompletedJobError)


@pytest.mark.parametrize(
    ("parameters", "line"),
    [
        ({"tasks_per_node": 2}, "tasks_per_node=2: a job of Stoker is one task on one machine"),
        ({"gpus_per_node": 9}, r"has 2: ask for fewer \(gpus_per_node\)"),
        ({"cpus_per_task": 0}, "cpus_per_task 0: expected int >= 1"),
        ({"stoker_gpu_mem": "much"}, "stoker_gpu_mem: 'much' is not an amount of memory"),
    ],
)
def test_wrong_parameters_are_refused(
    queue: Queue, executor: Any, parameters: dict[str, Any], line: str
) -> None:
    executor.update_parameters(**parameters)

    with pytest.raises(StokerError, match=line):
        executor.submit(fail, "no such thing")
    assert queue.ls() == {}


def test_a_function_that_cannot_be_pickled_is_refused(executor: Any) -> None:
    lock = threading.Lock()
    with pytest.raises(
        StokerError, match=r"power or its arguments cannot be sent.* '_thread.lock' object"
    ):
        executor.submit(power, lock, 2)


def test_the_cluster_is_used_only_if_it_is_named() -> None:
    assert StokerExecutor.affinity() <= 1
    assert submitit.AutoExecutor.which() != "stoker"
