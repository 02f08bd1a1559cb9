from __future__ import annotations

import pytest

from stoker.errors import NotFoundError, UsageError
from stoker.service.log import find
from unit.engine.engine_harness import FAILED, Harness, MakeHarness


def test_the_log_of_the_present_attempt_is_found_and_can_grow(harness: Harness) -> None:
    harness.add("a", retries=1)
    harness.end("1.1", FAILED)
    found = find(harness.context, "1", None)

    assert found.path == str(harness.home / "logs" / "0" / "1.2.log")
    assert (found.id, found.attempt) == (1, 2)
    assert not found.is_over()
    harness.end("1.2")
    assert found.is_over()


def test_an_earlier_attempt_is_over_although_the_job_is_not(harness: Harness) -> None:
    harness.add("a", retries=1)
    first = find(harness.context, "1", None)
    assert not first.is_over()
    harness.end("1.1", FAILED)

    assert first.is_over()
    assert find(harness.context, "1", 1).path == first.path


def test_the_log_of_a_job_that_has_not_started_is_where_it_will_be(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b")
    found = find(harness.context, "2", None)

    assert found.path.endswith("2.1.log")
    assert not found.is_over()


def test_a_log_of_the_users_own_has_its_placeholders_filled_in(harness: Harness) -> None:
    harness.add("a", log="out/{project}/{name}/{id}.log", name="one", project="vision")
    assert find(harness.context, "1", None).path == str(harness.home / "out/vision/one/1.log")

    harness.add("b", log="out/{project}/{name}/{id}.log")
    assert find(harness.context, "2", None).path == str(harness.home / "out/default/2/2.log")


def test_a_job_that_is_removed_meanwhile_writes_no_more(harness: Harness) -> None:
    harness.add("a")
    found = find(harness.context, "1", None)
    harness.rm("1", kill=True)

    assert found.is_over()


def test_the_daemons_own_log_is_never_over(harness: Harness) -> None:
    found = find(harness.context, "daemon", None)

    assert found.path == str(harness.home / "daemon.log")
    assert not found.is_over()


def test_an_attempt_that_never_was_is_an_error(harness: Harness) -> None:
    harness.add("a")
    with pytest.raises(NotFoundError, match="job 1 has no attempt 2: its last is 1"):
        find(harness.context, "1", 2)


@pytest.mark.parametrize(("job", "error"), [("9", NotFoundError), ("1-2", UsageError)])
def test_one_job_at_a_time_that_is_there(
    harness: Harness, job: str, error: type[Exception]
) -> None:
    harness.add("a", "b")
    with pytest.raises(error):
        find(harness.context, job, None)
