from __future__ import annotations

import base64
import os

import pytest

from stoker.core.lifecycle import State
from stoker.errors import NotFoundError, UsageError
from stoker.service.show import redact, show
from stoker.wire import Base64, Git, JobQuery, NewJob
from unit.engine.engine_harness import FAILED, Harness, MakeHarness


def b64(data: bytes) -> Base64:
    return Base64(base64.b64encode(data).decode())


def write_log(harness: Harness, data: bytes, job: int = 1, attempt: int = 1) -> None:
    path = harness.home / "logs" / "0" / f"{job}.{attempt}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def test_everything_about_a_job_is_shown(harness: Harness) -> None:
    harness.add(
        NewJob(command=["python", "a b.py"], name="one"),
        project="vision",
        env={"HOME": "/home/ada", "API_KEY": "123"},
        shell="/bin/bash",
        timeout_s=60.0,
        retries=1,
        git=Git(commit="abc", dirty=True),
        snapshot="0123/sub",
        user="ada",
    )
    harness.now += 5
    harness.end("1.1", 7 << 8)
    write_log(harness, b"first\nsecond \xff\n\n  \n", attempt=2)
    detail = show(harness.context, JobQuery("one"))

    assert (detail.id, detail.state, detail.command) == (1, State.RUNNING, "python 'a b.py'")
    assert (detail.argv, detail.line, detail.script) == (["python", "a b.py"], None, False)
    assert (detail.cwd, detail.shell, detail.snapshot) == (
        str(harness.home),
        "/bin/bash",
        "0123/sub",
    )
    assert detail.env == {"API_KEY": "***", "HOME": "/home/ada"}
    assert (detail.timeout_s, detail.retries, detail.git) == (
        60.0,
        1,
        Git(commit="abc", dirty=True),
    )
    assert (detail.user, detail.host) == ("ada", os.uname().nodename)
    assert detail.last_line == "second �"
    first, second = detail.attempts
    assert (first.number, first.state, first.exit_code, first.slots) == (1, State.FAILED, 7, "0")
    assert (first.started_at, first.ended_at, first.reason) == (1000.0, 1005.0, "exit 7")
    assert (second.number, second.state, second.ended_at) == (2, State.RUNNING, None)
    assert first.log == str(harness.home / "logs" / "0" / "1.1.log")


def test_what_is_no_text_survives(harness: Harness) -> None:
    harness.add(
        ["echo", b64(b"\xff")],
        b64(b"echo \xfe"),
        cwd=b64(b"/work/\xff"),
        env_b64=base64.b64encode(b"N\xff=v\xfe\0").decode(),
        log=b64(b"/logs/\xff.log"),
    )
    words, line = show(harness.context, JobQuery("1")), show(harness.context, JobQuery("2"))

    assert words.argv == ["echo", b64(b"\xff")]
    assert words.line is None
    assert line.line == b64(b"echo \xfe")
    assert line.cwd == b64(b"/work/\xff")
    assert line.env == {"N�": "v�"}
    assert line.attempts[0].log == b64(b"/logs/\xff.log")


def test_a_script_is_shown_as_it_was_given(harness: Harness) -> None:
    harness.add(NewJob(command="#!/bin/sh\necho a\n", script=True))
    detail = show(harness.context, JobQuery("1"))

    assert (detail.line, detail.script, detail.argv) == ("#!/bin/sh\necho a\n", True, None)


def test_a_job_that_has_not_started_has_no_attempt_and_no_last_line(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b")
    write_log(harness, b"somebody else's\n", job=2)
    detail = show(harness.context, JobQuery("2"))

    assert (detail.attempts, detail.last_line, detail.started_at) == ([], None, None)


def test_one_that_was_cancelled_while_it_waited_for_a_retry_shows_the_attempt_it_had(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", retries=1)
    harness.add("b", priority=5)
    harness.now += 5
    harness.end("1.1", FAILED)
    assert harness.executor.running == ["2.1"]
    harness.kill("1")
    detail = show(harness.context, JobQuery("1"))

    assert (detail.state, detail.reason) == (State.KILLED, "killed by request")
    assert [(each.number, each.state) for each in detail.attempts] == [(1, State.FAILED)]


def test_after_a_fresh_retry_the_snapshot_is_not_shown_any_more(harness: Harness) -> None:
    harness.add("a", snapshot="0123")
    harness.end("1.1", FAILED)
    harness.retry("1", fresh=True)

    assert show(harness.context, JobQuery("1")).snapshot is None


def test_a_log_that_is_a_pipe_is_not_waited_for(harness: Harness) -> None:
    pipe = harness.home / "pipe"
    os.mkfifo(pipe)
    harness.add("a", log=str(pipe))

    assert show(harness.context, JobQuery("1")).last_line is None


def test_of_a_long_log_only_the_end_is_read(harness: Harness) -> None:
    harness.add("a")
    write_log(harness, b"x" * 10_000_000 + b"\nlast\n")

    assert show(harness.context, JobQuery("1")).last_line == "last"


@pytest.mark.parametrize(("job", "error"), [("9", NotFoundError), ("1-2", UsageError)])
def test_one_job_at_a_time_that_is_there(
    harness: Harness, job: str, error: type[Exception]
) -> None:
    harness.add("a", "b")
    with pytest.raises(error):
        show(harness.context, JobQuery(job))


@pytest.mark.parametrize(
    "name",
    [
        "WANDB_API_KEY",
        "hf_token",
        "AWS_SECRET_ACCESS_KEY",
        "PGPASSWORD",
        "MYSQL_PWD",
        "GITHUB_PAT",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "SSH_AUTH_SOCK",
        "XAUTHORITY",
        "SENTRY_DSN",
        "Session_Cookie",
        "PRIVATE_THING",
    ],
)
def test_what_is_named_like_a_secret_is_hidden(name: str) -> None:
    assert redact({name: "hunter2"}) == {name: "***"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("postgres://ada:hunter2@db/x", "postgres://***@db/x"),
        ("https://ghp_hunter2@github.com/a/b", "https://***@github.com/a/b"),
        ("redis://:hunter2@cache:6379", "redis://***@cache:6379"),
        ("http://ada:hunt@er2@proxy:3128", "http://***@proxy:3128"),
        ("a http://x:hunter2@one b ftp://y:hunter2@two", "a http://***@one b ftp://***@two"),
        ("https://example.org/@scope", "https://example.org/@scope"),
        ("ada@example.org", "ada@example.org"),
    ],
)
def test_secrets_within_addresses_are_hidden(value: str, shown: str) -> None:
    assert redact({"ADDRESS": value}) == {"ADDRESS": shown}
    assert "hunter2" not in redact({"ADDRESS": value})["ADDRESS"]


@pytest.mark.parametrize("name", ["PATH", "HOME", "PWD", "OLDPWD", "LANG", "CUDA_HOME"])
def test_ordinary_variables_are_shown(name: str) -> None:
    assert redact({name: "/a/b"}) == {name: "/a/b"}
