"""GPUPeasy's routes, asked as its own pages asked them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from stoker.client.transport import Connection

if TYPE_CHECKING:
    from pathlib import Path

    from unit.api.api_server import ApiServer


def ask(api_server: ApiServer, path: str, body: object = None) -> Any:
    with Connection(api_server.home) as connection:
        data = None if body is None else msgspec.json.encode(body)
        method = "GET" if body is None else "POST"
        return msgspec.json.decode(connection.request(method, f"/gpupeasy/{path}", data).body)


def add(api_server: ApiServer, **job: object) -> Any:
    return ask(api_server, "addnewjob", {"job": job})


def test_a_job_goes_through_all_lists(api_server: ApiServer, tmp_path: Path) -> None:
    jobs = [
        add(api_server, jobName=name, outFile=f"{name}.txt", jobCommand=command, cwd=str(tmp_path))
        for name, command in (("one", "ls -l | wc"), ("two", ["ls", "-l"]), ("three", "true"))
    ]
    assert jobs == [
        {"status": "successful", "message": "Job added successfully", "jobID": number}
        for number in (1, 2, 3)
    ]
    api_server.until(lambda: len(api_server.executor.running) == 2)

    assert ask(api_server, "availabledevices") == {"status": "successful", "value": ["0", "1"]}
    running = ask(api_server, "deviceutilization")["value"]
    assert [row["jobCommand"] for row in running] == ["ls -l | wc", "ls -l"]
    assert sorted(row["gpu"] for row in running) == ["0", "1"]
    assert ask(api_server, "scheduledjobs")["value"] == [
        {"jobID": 3, "jobName": "three", "jobCommand": "true"}
    ]
    info = ask(api_server, "jobinfo/1")["value"]
    assert (info["jobid"], info["status"], info["returnCode"]) == (1, "Running", None)
    assert (info["outFile"], info["jobName"]) == (f"{tmp_path}/one.txt", "one")
    assert ask(api_server, "jobinfo/3")["value"]["status"] == "Scheduled"

    api_server.end(1)
    api_server.end(2, 3 << 8)
    api_server.end(3, 9)
    api_server.until(lambda: not api_server.context.engine.slot_table.running)
    assert ask(api_server, "successfuljobs")["value"] == [
        {"jobID": 1, "jobName": "one", "jobCommand": "ls -l | wc", "returnCode": 0}
    ]
    failed = {row["jobName"]: row["returnCode"] for row in ask(api_server, "failedjobs")["value"]}
    assert failed == {"two": 3, "three": -9}
    assert ask(api_server, "jobinfo/1")["value"]["status"] == "Succeeded"
    assert ask(api_server, "jobinfo/2")["value"]["status"] == "Failed"


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({}, "Key 'outFile' not found"),
        ({"jobName": "a", "outFile": "", "jobCommand": "true"}, "Output file not specified"),
        ({"jobName": "a", "outFile": "new", "jobCommand": ""}, "No jobs were submitted"),
        ({"jobName": "a", "outFile": "new", "jobCommand": []}, "No jobs were submitted"),
        ({"jobName": "a", "outFile": "there", "jobCommand": "true"}, "Output file already exists"),
        ({"jobName": "a", "outFile": "no/x", "jobCommand": "true"}, "Could not open output file"),
        ({"jobName": "a", "outFile": "a\0b", "jobCommand": "true"}, "Could not open output file"),
        ({"jobName": "a/b/c", "outFile": "new", "jobCommand": "true"}, "name"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_added(
    api_server: ApiServer, tmp_path: Path, job: dict[str, Any], message: str
) -> None:
    (tmp_path / "there").touch()
    answer = add(api_server, **job, cwd=str(tmp_path))
    assert answer["status"] == "failed"
    assert message in answer["message"]
    assert ask(api_server, "scheduledjobs")["value"] == []
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("job", ["99", "x", "@"])
def test_a_job_that_is_not_there_has_no_info(api_server: ApiServer, job: str) -> None:
    assert ask(api_server, f"jobinfo/{job}") == {"status": "failed", "value": {}}
