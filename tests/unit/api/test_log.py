from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stoker.api import log_follow
from stoker.api.log_tail import read_piece
from stoker.errors import NotFoundError, UsageError
from stoker.service import log as service

if TYPE_CHECKING:
    from stoker.client.client import Client
    from unit.api.api_server import ApiServer


def log_of(api_server: ApiServer, job: int, attempt: int | None = None) -> Path:
    path = Path(api_server.call(lambda: service.find(api_server.context, str(job), attempt).path))
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def append(path: Path, data: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(data)


def test_a_log_comes_byte_for_byte(api_server: ApiServer, client: Client) -> None:
    job = api_server.add("x")
    data = bytes(range(256)) * 1000
    log_of(api_server, job).write_bytes(data)
    assert b"".join(client.log(job)) == data


def test_the_log_of_a_job_that_has_none_is_empty(api_server: ApiServer, client: Client) -> None:
    assert list(client.log(api_server.add("x"))) == []


def test_the_last_lines_are_found_from_the_end(api_server: ApiServer, client: Client) -> None:
    job = api_server.add("x")
    lines = [f"line {number}\n".encode() for number in range(30_000)]
    log_of(api_server, job).write_bytes(b"".join(lines))
    assert b"".join(client.log(job, tail=12_345)) == b"".join(lines[-12_345:])


def test_a_log_is_followed_from_before_it_exists_to_the_end_of_its_job(
    api_server: ApiServer, client: Client
) -> None:
    first = api_server.add("holds a place", "holds the other", "x")
    job = first + 2
    pieces = client.log(job, follow=True)
    path = log_of(api_server, job)
    append(path, b"one\n")
    api_server.end(first)
    assert next(pieces) == b"one\n"
    append(path, b"two\n")
    assert next(pieces) == b"two\n"
    append(path, b"three\n")
    api_server.end(job)
    assert b"".join(pieces) == b"three\n"


def test_a_follower_of_a_silent_job_is_woken_by_its_end(
    api_server: ApiServer, client: Client
) -> None:
    job = api_server.add("x")
    path = log_of(api_server, job)
    append(path, b"all there is\n")
    pieces = client.log(job, follow=True)
    assert next(pieces) == b"all there is\n"
    api_server.end(job)
    assert list(pieces) == []


def test_following_goes_on_with_the_next_attempt(api_server: ApiServer, client: Client) -> None:
    job = api_server.add("x", retries=1)
    append(log_of(api_server, job), b"first\n")
    pieces = client.log(job, follow=True)
    assert next(pieces) == b"first\n"
    api_server.end(job, 256)
    api_server.until(lambda: f"{job}.2" in api_server.executor.running)
    append(log_of(api_server, job, 2), b"second\n")
    assert next(pieces) == b"second\n"
    api_server.end(job, 0, attempt=2)
    assert list(pieces) == []


def test_a_named_attempt_is_followed_alone(api_server: ApiServer, client: Client) -> None:
    job = api_server.add("x", retries=1)
    append(log_of(api_server, job), b"first\n")
    pieces = client.log(job, attempt=1, follow=True)
    api_server.end(job, 256)
    assert b"".join(pieces) == b"first\n"


def test_an_attempt_that_never_was_is_not_found(api_server: ApiServer, client: Client) -> None:
    job = api_server.add("x")
    with pytest.raises(NotFoundError):
        client.log(job, attempt=7)


def test_a_log_that_is_cut_short_is_read_from_its_new_beginning(
    api_server: ApiServer, client: Client
) -> None:
    job = api_server.add("x")
    path = log_of(api_server, job)
    append(path, b"a long first text\n")
    pieces = client.log(job, follow=True)
    assert next(pieces) == b"a long first text\n"
    os.truncate(path, 0)
    append(path, b"new\n")
    assert next(pieces) == b"new\n"


def test_a_log_that_is_replaced_is_read_from_its_beginning(
    api_server: ApiServer, client: Client
) -> None:
    job = api_server.add("x")
    path = log_of(api_server, job)
    append(path, b"old\n")
    pieces = client.log(job, follow=True)
    assert next(pieces) == b"old\n"
    other = path.with_suffix(".new")
    other.write_bytes(b"replaced\n")
    other.replace(path)
    assert next(pieces) == b"replaced\n"


def test_a_pipe_or_terminal_as_log_holds_nobody_up(api_server: ApiServer, client: Client) -> None:
    job = api_server.add("x")
    os.mkfifo(log_of(api_server, job))
    assert list(client.log(job)) == []


def test_a_log_that_cannot_be_read_says_so(api_server: ApiServer, client: Client) -> None:
    job = api_server.add("x")
    path = log_of(api_server, job)
    path.symlink_to(path)
    with pytest.raises(Exception, match="cannot read the log"):
        list(client.log(job, tail=5))


def test_the_daemons_own_log_is_followed_without_an_end(
    api_server: ApiServer, client: Client
) -> None:
    path = Path(api_server.home, "daemon.log")
    append(path, b"started\n")
    pieces = client.log("daemon", follow=True)
    assert next(pieces) == b"started\n"
    append(path, b"more\n")
    assert next(pieces) == b"more\n"
    del pieces


def test_a_log_outside_of_the_home_is_read_too(
    api_server: ApiServer, client: Client, tmp_path: Path
) -> None:
    path = tmp_path / "elsewhere.log"
    job = api_server.add("x", log=str(path))
    path.write_bytes(b"out there\n")
    assert b"".join(client.log(job)) == b"out there\n"
    pieces = client.log(job, follow=True)
    assert next(pieces) == b"out there\n"
    append(path, b"more\n")
    api_server.end(job)
    assert b"".join(pieces) == b"more\n"


def test_lines_that_come_quickly_are_sent_together(api_server: ApiServer, client: Client) -> None:
    job = api_server.add("x")
    path = log_of(api_server, job)
    append(path, b"begin\n")
    pieces = client.log(job, follow=True)
    assert next(pieces) == b"begin\n"

    def write() -> None:
        for number in range(200):
            append(path, b"%d\n" % number)
            time.sleep(0.001)
        api_server.end(job)

    writer = threading.Thread(target=write)
    began_s = time.monotonic()
    writer.start()
    got = list(pieces)
    took_s = time.monotonic() - began_s
    writer.join()
    assert b"".join(got) == b"".join(b"%d\n" % number for number in range(200))
    # However slow the machine is: a pause follows each piece, and the last ones come with the end.
    assert len(got) <= took_s / log_follow._PAUSE_S + 3


def test_a_follower_that_leaves_is_forgotten(api_server: ApiServer, client: Client) -> None:
    job = api_server.add("x")
    path = log_of(api_server, job)
    append(path, b"one\n")
    pieces = client.log(job, follow=True)
    next(pieces)
    tasks = api_server.context.events._awaiting_job
    api_server.until(lambda: tasks)
    pieces.close()  # type: ignore[attr-defined]
    api_server.until(lambda: not tasks)


def test_tail_and_offset_exclude_each_other(api_server: ApiServer) -> None:
    from stoker.client.transport import Connection

    connection = Connection(api_server.home)
    with pytest.raises(UsageError, match="not both"):
        connection.request("GET", "/v1/log?job=1&tail=1&offset=1")
    connection.close()


def test_a_log_that_comes_to_be_while_one_begins_to_follow_is_watched_at_once(
    api_server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = api_server.add("x")
    path = log_of(api_server, job)
    real = read_piece

    def late(*details: Any) -> Any:
        if not path.exists():
            append(path, b"one\n")
        return real(*details)

    monkeypatch.setattr(log_follow, "read_piece", late)
    pieces = client.log(job, follow=True)
    assert next(pieces) == b"one\n"
    append(path, b"two\n")
    begun = time.monotonic()
    assert next(pieces) == b"two\n"
    assert time.monotonic() - begun < 1
