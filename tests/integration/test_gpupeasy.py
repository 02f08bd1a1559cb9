"""What GPUPeasy's README says of jobs, over its own route and over its batch text."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from integration.daemon_fixture import Queue
from stoker.client.transport import Connection


def ask(queue: Queue, path: str, body: object = None) -> Any:
    with Connection(str(queue.home)) as connection:
        data = None if body is None else msgspec.json.encode(body)
        method = "GET" if body is None else "POST"
        return msgspec.json.decode(connection.request(method, f"/gpupeasy/{path}", data).body)


def test_a_job_has_a_name_an_outfile_and_a_shell_command_and_takes_one_gpu(queue: Queue) -> None:
    queue.stoker.file("blah.py", "import sys; print('out'); print('err', file=sys.stderr)")
    hold = "until [ -e go ]; do sleep 0.01; done; echo $CUDA_VISIBLE_DEVICES | cat"
    for name, command in (
        ("python", "python -u blah.py"),
        ("first", hold),
        ("second", hold),
        ("third", "ls -l"),
    ):
        job = {"jobName": name, "outFile": name, "jobCommand": command, "cwd": str(queue.work)}
        assert ask(queue, "addnewjob", {"job": job})["status"] == "successful"

    def running() -> list[str]:
        return [row["jobName"] for row in ask(queue, "deviceutilization")["value"]]

    queue.until(lambda: running() == ["first", "second"], "each has a GPU of its own")
    assert [row["jobName"] for row in ask(queue, "scheduledjobs")["value"]] == ["third"]
    (queue.work / "go").touch()
    queue.until(lambda: len(ask(queue, "successfuljobs")["value"]) == 4, "all have succeeded")
    assert queue.stoker.read("python") == ["out", "err"]
    assert {*queue.stoker.read("first"), *queue.stoker.read("second")} == {"0", "1"}
    assert any("blah.py" in line for line in queue.stoker.read("third"))


def test_a_batch_of_jobs_is_added_whole_or_not_at_all(queue: Queue) -> None:
    text = "one;;one.txt;;echo one\n| cat;;;\ntwo;;two.txt;;echo $CUDA_VISIBLE_DEVICES;;;\n"
    queue.stoker.file("good", text)
    queue.stoker.file("bad", text + "three;;;;ls;;;")

    assert queue("add", "--batch", "bad", "--format", "gpupeasy").code == 2
    assert queue.ls() == {}
    queue.ok("add", "--batch", "good", "--format", "gpupeasy")
    queue.ok("wait")
    assert queue.stoker.read("one.txt") == ["one"]
    assert queue.stoker.read("two.txt")[0] in ("0", "1")


BATCH = """\
first;;first.txt;;
  echo one
  | cat;;;
second;;second.txt;;
  echo two;;;
"""


def test_a_batch_with_its_semicolons_is_recognised_by_itself(queue: Queue) -> None:
    assert queue.ok("add", "--batch", "-", stdin=BATCH) == "added jobs 1-2\n"
    queue.ok("wait")

    assert queue.stoker.read("first.txt") == ["one"]
    assert queue.stoker.read("second.txt") == ["two"]


def test_a_recognised_batch_with_an_error_adds_nothing(queue: Queue) -> None:
    ended = queue("add", "--batch", "-", stdin=BATCH + "third;; ;;ls;;;")

    assert ended.code == 2
    assert "Error in job: third: Output file not specified" in ended.err
    assert queue.ls() == {}


def test_a_recognised_batch_takes_no_log_option(queue: Queue) -> None:
    ended = queue("add", "-o", "{id}.log", "--batch", "-", stdin=BATCH)

    assert ended.code == 2
    assert "names its own output file" in ended.err
    assert queue.ls() == {}


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"outFile": "a", "jobName": "a", "jobCommand": ""}, "No jobs were submitted"),
        ({"outFile": "a", "jobName": "", "jobCommand": "ls"}, "No job name was provided"),
        ({"outFile": "", "jobName": "a", "jobCommand": "ls"}, "Output file not specified"),
        (
            {"outFile": "taken", "jobName": "a", "jobCommand": "ls"},
            "Output file already exists: {cwd}/taken",
        ),
        (
            {"outFile": "no/such", "jobName": "a", "jobCommand": "ls"},
            "Could not open output file: {cwd}/no/such",
        ),
        ({"jobName": "a", "jobCommand": "ls"}, "Key 'outFile' not found"),
        ({"outFile": "a", "jobCommand": "ls"}, "Key 'jobName' not found"),
        ({"outFile": "a", "jobName": "a"}, "Key 'jobCommand' not found"),
    ],
)
def test_the_routes_errors_have_the_words_of_the_original(
    queue: Queue, job: dict[str, str], message: str
) -> None:
    queue.stoker.file("taken", "")

    answer = ask(queue, "addnewjob", {"job": {**job, "cwd": str(queue.work)}})

    assert answer == {"status": "failed", "message": message.format(cwd=queue.work)}


def test_a_request_without_a_job_is_told_so_as_by_the_original(queue: Queue) -> None:
    assert ask(queue, "addnewjob", {}) == {"status": "failed", "message": "Key 'job' not found"}
