"""Sweeps planned, queued and looked at through the API: each by a process of its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from stoker import wire
from stoker.client.transport import Connection
from stoker.engine.worker_process import WorkerProcesses
from stoker.errors import NotFoundError, StokerError, UsageError

if TYPE_CHECKING:
    from unit.api.api_server import ApiServer


def ask(api_server: ApiServer, method: str, path: str, body: object = None) -> tuple[int, Any]:
    data = None if body is None else msgspec.json.encode(body)
    with Connection(api_server.home) as connection:
        answer = connection.request(method, path, data)
    return answer.status, answer.body


def draft(folder: Path, **more: Any) -> dict[str, Any]:
    return {"text": "echo {lr} {bs}", "words": ["lr=1,2", "bs=32,64"], "cwd": str(folder), **more}


def test_a_draft_is_counted_and_nothing_is_queued(api_server: ApiServer, tmp_path: Path) -> None:
    status, body = ask(api_server, "POST", "/v1/plan", draft(tmp_path))
    plan = msgspec.json.decode(body, type=wire.SweepPlan)
    assert (status, plan.name, plan.count, plan.todo) == (200, "echo", 4, 4)
    assert plan.varied == ["lr", "bs"]
    assert [run.command for run in plan.runs][:2] == ["echo 1 32", "echo 1 64"]
    assert api_server.call(
        lambda: api_server.context.database.execute("SELECT count(*) FROM job").fetchone()
    ) == (0,)


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"text": "  "}, "text", "no command was given"),
        ({"words": ["lr"]}, "words", "not a parameter"),
        ({"words": ["lr=1", "bs=2", "unused=3"]}, "text", "unused"),
        ({"form": "yaml", "text": "command: [", "words": []}, "text", "sweep.yaml:"),
        ({"form": "toml", "text": "command = ", "words": []}, "text", "sweep.toml: Invalid"),
        ({"cwd": "/does/not/exist"}, "cwd", "no folder"),
        ({"cwd": "here"}, "cwd", "the absolute path"),
        ({"samples": 0}, "samples", "samples"),
    ],
)
def test_a_mistake_names_its_field(
    api_server: ApiServer, tmp_path: Path, change: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        ask(api_server, "POST", "/v1/plan", {**draft(tmp_path), **change})
    assert caught.value.field == field


def test_a_sweep_is_queued_once_and_what_came_of_it_is_told(
    api_server: ApiServer, tmp_path: Path
) -> None:
    order = draft(tmp_path, name="s", gpus=0)
    status, body = ask(api_server, "POST", "/v1/sweep", order)
    added = msgspec.json.decode(body, type=wire.SweepAdded)
    assert (status, added.added, added.first, added.last) == (201, 4, 1, 4)
    api_server.until(lambda: len(api_server.executor.running) == 2)
    where = f"?name=s&cwd={tmp_path}"
    known = msgspec.json.decode(ask(api_server, "GET", f"/v1/sweep{where}")[1], type=wire.SweepPage)
    first = Path(str(known.runs[0].dir))
    first.mkdir(parents=True)
    first.joinpath("metrics.jsonl").write_text(
        "".join(json.dumps({"step": step, "loss": 1 / step}) + "\n" for step in range(1, 1001))
    )
    api_server.end(1)
    api_server.end(2, 256)
    api_server.until(lambda: "4.1" in api_server.executor.running)

    again = msgspec.json.decode(
        ask(api_server, "POST", "/v1/sweep", order)[1], type=wire.SweepAdded
    )
    assert (again.added, again.passed_over) == (1, 3)  # the one that failed

    results = msgspec.json.decode(
        ask(api_server, "GET", f"/v1/results{where}")[1], type=wire.SweepResults
    )
    assert results.params == ["bs", "lr"]
    assert results.metrics == ["loss"]
    states = {tuple(run.params.values()): run.state.value for run in results.runs}
    assert states[32, 1] == "done"
    assert len(results.runs) == 4  # the failed run counts by its new job
    assert results.runs[0].metrics["loss"] == 0.001

    curves = msgspec.json.decode(
        ask(api_server, "GET", f"/v1/curves{where}&metric=loss")[1], type=list[wire.CurvePoints]
    )
    assert [curve.job for curve in curves] == [1]
    assert (curves[0].xs[0], curves[0].xs[-1]) == (1, 1000)
    assert len(curves[0].xs) <= 301

    csv = ask(api_server, "GET", f"/v1/export{where}")[1].decode().splitlines()
    assert csv[0] == "job,state,attempt,slots,reason,bs,lr,loss"
    assert csv[1].startswith("1,done,1,")

    [info] = msgspec.json.decode(ask(api_server, "GET", "/v1/sweeps")[1], type=list[wire.SweepInfo])
    assert (info.name, info.cwd, info.first, info.last) == ("s", str(tmp_path), 1, 5)
    assert sum(info.counts.values()) == 5


def test_a_sweep_of_the_page_shares_and_starts_warm_as_its_text_says(
    api_server: ApiServer, tmp_path: Path
) -> None:
    text = (
        "command: python t.py {lr}\nwarm: [json]\nparameters: {lr: [1]}\n"
        "resources: {retries: 2, priority: 3, timeout: 1h, gpu_mem: 1M}\n"
    )
    order = {"form": "yaml", "text": text, "cwd": str(tmp_path), "priority": 4}
    added = msgspec.json.decode(
        ask(api_server, "POST", "/v1/sweep", order)[1], type=wire.SweepAdded
    )
    job = msgspec.json.decode(
        ask(api_server, "GET", f"/v1/show?job={added.first}")[1], type=wire.JobDetail
    )
    assert (job.share, job.options.warm) == ("auto", ("json",))
    assert (job.gpus, job.retries, job.priority, job.timeout_s) == (1, 2, 4, 3600)
    assert job.gpu_mem_bytes == 2**20


def test_a_sweep_that_nobody_queued_is_not_found(api_server: ApiServer) -> None:
    for path in ("results", "export"):
        with pytest.raises(NotFoundError, match="no sweep 'none'"):
            ask(api_server, "GET", f"/v1/{path}?name=none&cwd=/")


def test_an_worker_task_that_takes_too_long_is_given_up_and_one_that_breaks_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(name: str, order: object) -> bytes:
        return await WorkerProcesses(str(tmp_path)).send(name, order)

    with pytest.raises(StokerError, match="failed with exit 1"):
        asyncio.run(send("plan", {"nonsense": 1}))
    monkeypatch.setattr("stoker.engine.worker_process.TIMEOUT_S", 0.0)
    with pytest.raises(StokerError, match="given up"):
        asyncio.run(send("plan", {}))


def test_errors_of_an_worker_task_are_those_of_the_daemon(tmp_path: Path) -> None:
    async def send() -> bytes:
        return await WorkerProcesses(str(tmp_path)).send("plan", draft(tmp_path, words=["lr"]))

    with pytest.raises(UsageError) as caught:
        asyncio.run(send())
    assert caught.value.field == "words"
    assert not isinstance(caught.value, NotFoundError)


def test_a_batch_is_read_and_all_that_is_wrong_is_told(
    api_server: ApiServer, tmp_path: Path
) -> None:
    text = "a;;a.log;;echo;;;\nb;;b.log;;;\n;;c.log;;echo;;;"
    body = {"text": text, "cwd": str(tmp_path), "form": "gpupeasy"}
    found = msgspec.json.decode(ask(api_server, "POST", "/v1/batch", body)[1], type=wire.BatchJobs)
    assert [job.name for job in found.jobs] == ["a"]
    assert found.errors == [
        "Malformed job: b;;b.log (write NAME;;OUTFILE;;COMMAND;;;)",
        "Error in job: number 3: No job name was provided",
    ]
    assert list(tmp_path.iterdir()) == [tmp_path / "home"]
    assert ask(api_server, "POST", "/v1/batch", {"text": text, "cwd": str(tmp_path)}) == ask(
        api_server, "POST", "/v1/batch", body
    ), "it is recognised by itself"
    lines = {"text": "one\n# none\ntwo \\\nmore\n", "cwd": str(tmp_path)}
    found = msgspec.json.decode(ask(api_server, "POST", "/v1/batch", lines)[1], type=wire.BatchJobs)
    assert [job.command for job in found.jobs] == ["one", "two more"]
    assert found.errors == []
    nothing = {"text": "\n#\n", "cwd": str(tmp_path)}
    found = msgspec.json.decode(
        ask(api_server, "POST", "/v1/batch", nothing)[1], type=wire.BatchJobs
    )
    assert found.errors == ["no job in it: write one command a line"]
