"""Few descriptors, many jobs: an ancestor's worst bug."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

from fault.ledger import Verdict, leaks
from patience import until
from scale import LONG
from stoker.wire import NewJob

if TYPE_CHECKING:
    from fault.conftest import Tell
    from fault.home import Home
    from fault.work import Work

JOBS = 10_000 if LONG else 600
DESCRIPTORS = 256


@pytest.mark.timeout(300)
def test_with_256_descriptors_all_queued_jobs_run_with_logs_of_their_own(
    home: Home, work: Work, tell: Tell
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, limits[1]))
    try:
        home.start("--gpus", "0,1,2,3")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    jobs = [
        NewJob(command=f"echo {number}; ulimit -n", log=f"logs/{{id}}-{number}.txt")
        for number in range(JOBS)
    ]

    with home.client() as client:
        (added,) = client.add(work.submission(jobs))
        [*client.wait()]
    until(lambda: not any(slot.held for slot in home.status().slots), "the GPUs are given back")

    missing = [
        f"job {added.first + number} has not run"
        for number in range(JOBS)
        if written(work, added.first + number, number) != f"{number}\n{DESCRIPTORS}\n"
    ]
    stranded = [each.key for each in home.attempts() if each.state != "done"]
    verdict = Verdict(missing, [], [], leaks(home), stranded, [])
    tell("jobs with logs of their own, 256 descriptors", JOBS, verdict)
    assert verdict.is_clean, verdict


def written(work: Work, job: int, number: int) -> str:
    """What a job has written to its log."""
    try:
        return (work.folder / "logs" / f"{job}-{number}.txt").read_text()
    except FileNotFoundError:
        return ""
