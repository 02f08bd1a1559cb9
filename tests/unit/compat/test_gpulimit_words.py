"""gpulimit's commands with a daemon that runs no processes: states, ids and errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import pytest

from stoker.client.client import Client
from stoker.compat.gpulimit import main as gpulimit
from stoker.compat.gpulimit.tasks import status_of, translate
from stoker.core.lifecycle import State
from unit.api.api_server import ApiServer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """Return a daemon for gpulimit, with one complete task."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("STOKER_HOME", str(home))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    api_server = ApiServer(home)
    api_server.add("true")
    api_server.end(1)
    api_server.until(lambda: not api_server.context.engine.slot_table.running)
    yield api_server
    api_server.close()


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["gpulimit", *words])
    return gpulimit.main()


@pytest.mark.parametrize(
    ("words", "complaint", "code"),
    [
        (["show", "99"], "[error]: can not found id 99 in task queue.", 1),
        (["kill", "99"], "[error]: can not found id 99 in task queue.", 1),
        (["rm", "3-7"], "[error]: can not found id 3-7 in task queue.", 1),
        (["move", "99"], "[error]: can not found id 99 in task queue.", 1),
        (["kill", "x"], "[error]: input x is not a task id", 2),
        (["show", "1-2"], "[error]: input 1-2 is not a task id", 2),
        (["move", "0", "-1"], "[error]: input -1 is not an index", 2),
        (["move", "0"], "[error]: task 0 is done: only what waits", 1),
        (["set", "X", "2"], "[error]: name `X` can not set", 2),
        (["set", "SAFETY_KEEP_MEMORY", "1.5"], "[error]: SAFETY_KEEP_MEMORY cannot be '1.5': a", 2),
        (["set", "MAX_ERR_TIMES", "0.5"], "[error]: MAX_ERR_TIMES cannot be '0.5': a whole", 2),
        (["add"], "[error]: no command was given", 2),
        (["add", "--prio=1", "true"], "[error]: add has no --prio", 2),
        (["add", "--priority=high", "true"], "[error]: --priority=high is no whole number", 2),
        (["add", "--logpath"], "[error]: --logpath needs a value", 2),
        (["ls", "--al"], "[error]: usage: gpulimit ls [--all]", 2),
        (["clean", "done"], "[error]: there is no status done; there are: CMD_ERROR", 2),
        (["show"], "[error]: usage: gpulimit show ID", 2),
        (["frobnicate"], "[error]: no cmd found: frobnicate", 2),
        (["help", "me"], "[error]: no cmd found: me", 2),
    ],
)
def test_a_mistake_is_one_line_and_a_failing_exit_code(
    api_server: ApiServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    complaint: str,
    code: int,
) -> None:
    assert run(monkeypatch, *words) == code
    out = capsys.readouterr().out
    assert complaint in out
    assert out.count("\n") == 1
    with Client(api_server.home) as client:
        assert [job.state for job in client.jobs()] == [State.DONE]


@pytest.mark.parametrize(
    ("state", "exit_code", "signal", "status"),
    [
        ("waiting", None, None, "waiting"),
        ("held", None, None, "waiting"),
        ("blocked", None, None, "waiting"),
        ("delayed", None, None, "waiting"),
        ("starting", None, None, "running"),
        ("running", None, None, "running"),
        ("paused", None, None, "paused"),
        ("done", 0, None, "complete"),
        ("failed", 1, None, "runtime_error"),
        ("failed", None, 9, "runtime_error"),
        ("failed", 126, None, "CMD_ERROR"),
        ("failed", 127, None, "CMD_ERROR"),
        ("failed", None, None, "CMD_ERROR"),
        ("lost", None, None, "runtime_error"),
        ("killed", None, 15, "killed"),
        ("skipped", None, None, "killed"),
    ],
)
def test_every_state_of_a_job_has_a_status_of_a_task(
    api_server: ApiServer, state: str, exit_code: int | None, signal: int | None, status: str
) -> None:
    with Client(api_server.home) as client:
        [job] = client.jobs()
    changed = {"state": State(state), "exit_code": exit_code, "signal": signal}
    assert status_of(msgspec.structs.replace(job, **changed)) == status


def test_without_a_server_the_error_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path))
    assert run(monkeypatch, "ls") == 1
    printed = capsys.readouterr().out
    assert (
        printed
        == f"[error]: no daemon runs for {tmp_path}: gpulimit add or gpulimit_server starts one\n"
    )


def test_messages_use_the_ids_of_tasks() -> None:
    assert translate("job 4 is done: only what waits") == "task 3 is done: only what waits"
    assert translate("3 jobs: 1-2,7; jobs 4-8 wait") == "3 jobs: 1-2,7; tasks 3-7 wait"
