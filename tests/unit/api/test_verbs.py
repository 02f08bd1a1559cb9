from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stoker.client.client import Client
from stoker.core.lifecycle import State
from stoker.errors import NotFoundError, UsageError
from stoker.wire import (
    Kill,
    NewJob,
    NewSetting,
    Progress,
    Remove,
    Retry,
    Selection,
    Submission,
)

if TYPE_CHECKING:
    from unit.api.api_server import ApiServer


def test_a_job_is_added_listed_and_shown(api_server: ApiServer, client: Client) -> None:
    job = api_server.add("echo one", "echo two", name="pair")
    page = client.ls(limit=1)
    assert [each.command for each in page.jobs] == ["echo one"]
    assert [each.id for each in client.jobs()] == [job, job + 1]
    detail = client.show(job)
    assert (detail.line, detail.name, detail.cwd) == ("echo one", "pair", "/")


def test_the_same_request_id_adds_nothing_twice(api_server: ApiServer, client: Client) -> None:
    submission = Submission(
        request_id="once-and-no-more", jobs=[NewJob(command="true")], cwd="/", gpus=0
    )
    [first] = client.add(submission)
    [second] = client.add(submission)
    assert (first.first, first.repeated) == (second.first, False)
    assert second.repeated
    assert len(list(client.jobs())) == 1


def test_a_running_job_is_killed(api_server: ApiServer, client: Client) -> None:
    job = api_server.add("sleep 100")
    api_server.until(lambda: api_server.executor.running)
    assert client.kill(Kill(ids=str(job))).ids == [job]
    assert list(client.wait(Selection(ids=str(job))))[-1].counts == {State.KILLED: 1}


def test_what_cannot_be_killed_is_told_with_its_reason(
    api_server: ApiServer, client: Client
) -> None:
    job = api_server.add("true")
    api_server.end(job)
    api_server.until(lambda: not api_server.context.engine.slot_table.running)
    [refusal] = client.kill(Kill(ids=str(job))).refused
    assert refusal.id == job
    assert "done" in refusal.reason


def test_a_job_is_retried_and_removed(api_server: ApiServer, client: Client) -> None:
    job = api_server.add("false")
    api_server.end(job, 256)
    api_server.until(lambda: not api_server.context.engine.slot_table.running)
    assert client.retry(Retry(ids=str(job))).ids == [job]
    api_server.end(job, 0, attempt=2)
    api_server.until(lambda: not api_server.context.engine.slot_table.running)
    assert client.show(job).state is State.DONE
    assert client.rm(Remove(ids=str(job))).ids == [job]
    with pytest.raises(NotFoundError):
        client.show(job)


def test_wait_tells_now_and_then_until_nothing_is_left(
    api_server: ApiServer, client: Client
) -> None:
    first = api_server.add("one", "two")
    steps = client.wait()
    api_server.until(lambda: len(api_server.executor.running) == 2)
    assert next(steps).left == 2
    api_server.end(first)
    *_, last_but_one = [next(steps)]
    assert last_but_one.left <= 2
    api_server.end(first + 1)
    assert list(steps)[-1] == Progress(counts={State.DONE: 2}, left=0)


def test_wait_for_nothing_ends_at_once(api_server: ApiServer, client: Client) -> None:
    assert list(client.wait()) == [Progress(counts={}, left=0)]


def test_events_tell_of_every_state(api_server: ApiServer, client: Client) -> None:
    events = client.events()
    job = api_server.add("true")
    api_server.end(job)
    seen = [next(events) for _ in range(3)]
    assert [(each.id, each.state) for each in seen] == [  # type: ignore[union-attr]
        (job, State.STARTING),
        (job, State.RUNNING),
        (job, State.DONE),
    ]


def test_status_tells_slots_and_counts(api_server: ApiServer, client: Client) -> None:
    api_server.add("true")
    status = client.status()
    assert status.home == api_server.home
    assert [slot.label for slot in status.slots] == ["0", "1"]
    assert sum(status.counts.values()) == 1


def test_a_setting_is_read_changed_and_reset(client: Client) -> None:
    names = [setting.name for setting in client.config()]
    assert "keep.days" in names
    assert client.set_config(NewSetting(name="keep.days", value="7")).value == "7"
    reset = client.set_config(NewSetting(name="keep.days", value=None))
    assert reset.value == reset.default


def test_stop_asks_the_daemon_to_go(api_server: ApiServer, client: Client) -> None:
    client.stop(kill=True)
    assert api_server.call(lambda: api_server.context.stopping.result()) is True


def test_what_makes_no_sense_is_a_usage_error(client: Client) -> None:
    with pytest.raises(UsageError, match="cursor"):
        client.ls(after="nonsense")
    with pytest.raises(NotFoundError):
        client.show("nobody")


def test_waiting_for_a_job_that_is_removed_ends_with_the_reason(
    api_server: ApiServer, client: Client
) -> None:
    job = api_server.add("one", "two", "three") + 2
    steps = client.wait(Selection(ids=str(job)))
    assert next(steps).left == 1
    with Client(api_server.home) as other:
        other.rm(Remove(ids=str(job)))
    with pytest.raises(NotFoundError):
        list(steps)
