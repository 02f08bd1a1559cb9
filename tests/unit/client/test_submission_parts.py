from __future__ import annotations

from stoker.client.submit import split_submission
from stoker.wire import MAX_JOBS, NewJob, NewRun, Submission


def submission(jobs: list[NewJob], request_id: str = "") -> Submission:
    return Submission(request_id=request_id, jobs=jobs, cwd="/")


def test_a_submission_that_fits_is_not_split() -> None:
    jobs = [NewJob(command="true")] * MAX_JOBS
    [part] = split_submission(submission(jobs, "my own request"))
    assert part.jobs == jobs
    assert part.request_id == "my own request"


def test_a_missing_request_id_is_created() -> None:
    [one] = split_submission(submission([NewJob(command="true")]))
    [two] = split_submission(submission([NewJob(command="true")]))
    assert one.request_id != two.request_id


def test_too_many_jobs_are_split_in_their_order() -> None:
    jobs = [NewJob(command=str(number)) for number in range(2 * MAX_JOBS + 1)]
    parts = list(split_submission(submission(jobs, "my own request")))
    assert [len(part.jobs) for part in parts] == [MAX_JOBS, MAX_JOBS, 1]
    assert [job for part in parts for job in part.jobs] == jobs
    again = split_submission(submission(jobs, "my own request"))
    ids = [part.request_id for part in parts]
    assert ids == [part.request_id for part in again]
    assert len(set(ids)) == 3


def test_too_many_bytes_are_split() -> None:
    jobs = [NewJob(command=["x" * 10_000_000]) for _ in range(7)]
    parts = list(split_submission(submission(jobs)))
    assert [len(part.jobs) for part in parts] == [3, 3, 1]


def test_the_parameters_of_a_run_count_as_bytes() -> None:
    run = NewRun(identity="0" * 64, dir="/runs/1", params='"' + "x" * 5_000_000 + '"')
    parts = list(split_submission(submission([NewJob(command="train", run=run)] * 7)))
    assert [len(part.jobs) for part in parts] == [3, 3, 1]


def test_one_job_is_never_split() -> None:
    [part] = split_submission(submission([NewJob(command="x" * 50_000_000)]))
    assert len(part.jobs) == 1
