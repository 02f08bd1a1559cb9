"""A GPU that is given back while a job has just taken it stays that job's: nothing else may lease it."""

from __future__ import annotations

import pytest

from contract.executor_harness import FOREVER, SLOTS, Harness
from stoker.executors.contract import Launch, Released, Started
from stoker.gpus import lease

KEY = SLOTS[0].keys[0]


@pytest.fixture(params=["local", "kept"])
def harness(request: pytest.FixtureRequest) -> Harness:
    found: Harness = request.getfixturevalue(request.param)
    return found


def launch_ahead(harness: Harness, key: str, text: str) -> None:
    harness.executor.launch([Launch(key, (), ["/bin/sh", "-c", text], ahead=True)])


def is_free() -> bool:
    taken = lease.take(KEY, "another")
    if taken is None:
        return False
    taken.release()
    return True


def test_the_gpu_of_a_job_that_was_launched_ahead_is_leased_to_its_end(harness: Harness) -> None:
    harness.executor.offer(SLOTS[:1])
    launch_ahead(harness, "1.1", FOREVER)
    assert harness.started("1.1").slot == 0

    # The client gives the GPU back before it has read that the job has started.
    harness.executor.release(0, SLOTS[0].keys)
    harness.until(lambda: harness.of(Released))
    assert not is_free()

    harness.executor.kill("1.1")
    harness.ended("1.1")
    harness.until(is_free)


def test_a_slot_that_was_given_back_takes_no_more_jobs_that_were_launched_ahead(
    harness: Harness,
) -> None:
    harness.executor.offer(SLOTS[:1])
    launch_ahead(harness, "1.1", FOREVER)
    harness.started("1.1")
    harness.executor.release(0, SLOTS[0].keys)
    harness.until(lambda: harness.of(Released))
    launch_ahead(harness, "2.1", "true")
    harness.executor.kill("1.1")
    harness.ended("1.1")

    harness.sh("3.1", "true", 1)
    harness.ended("3.1")
    assert "2.1" not in {report.key for report in harness.of(Started)}
    harness.until(is_free)
    harness.executor.hold(0)
    harness.executor.offer(SLOTS[:1])
    harness.ended("2.1")
