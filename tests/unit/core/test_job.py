from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.job import Attempt, Ending, Outcome, Request, describe, describe_leftovers, judge
from stoker.core.lifecycle import Event
from stoker.core.waste import Waste


@given(st.integers(0, 2**63), st.integers(0, 10**6))
def test_an_attempts_key_is_read_back_as_it_was_written(job: int, number: int) -> None:
    attempt = Attempt(job, number)

    assert Attempt.from_key(attempt.key) == attempt


def test_a_key_is_the_job_and_the_number_of_the_attempt() -> None:
    assert Attempt(12, 3).key == "12.3"


def test_only_an_ending_for_waste_is_a_failure_of_the_class_of_its_name() -> None:
    failures = {ending: ending.failure for ending in Ending if ending.failure is not None}
    assert {ending.value for ending in failures} == {waste.value for waste in Waste}
    assert {each.value for each in failures.values()} == {waste.value for waste in Waste}
    assert {ending for ending in Ending if ending.may_retry} == {*failures, Ending.OVERDUE}


def test_a_request_asks_for_one_slot_and_nothing_else_by_default() -> None:
    assert Request() == Request(slots=1, priority=0, timeout_s=None, retries=0)


@given(st.integers(1, 255))
def test_any_exit_code_but_zero_is_a_failure_and_kept(code: int) -> None:
    outcome = judge(code << 8)

    assert outcome.event is Event.FAIL
    assert not outcome.is_success
    assert outcome.exit_code == code
    assert outcome.status == code << 8


@given(st.integers(1, 64), st.booleans())
def test_a_death_by_signal_is_a_failure_without_exit_code(signum: int, dumped: bool) -> None:
    outcome = judge(signum | (0x80 if dumped else 0))

    assert outcome.event is Event.FAIL
    assert outcome.exit_code is None
    assert outcome.reason
    assert outcome.reason.startswith("killed by ")


def test_exit_zero_is_success() -> None:
    assert judge(0) == Outcome(event=Event.SUCCEED, status=0)
    assert judge(0).is_success
    assert judge(0).exit_code == 0


def test_what_we_ended_ourselves_is_killed_and_says_why() -> None:
    outcome = judge(signal.SIGTERM, killed_because="time limit of 2s")

    assert outcome == Outcome(event=Event.KILL, status=15, reason="time limit of 2s")


def test_what_we_ended_is_killed_however_it_then_exited() -> None:
    outcome = judge(0, killed_because="over the time limit of 2s")

    assert outcome.event is Event.KILL
    assert outcome.status == 0


def test_what_never_was_a_process_has_no_exit_code() -> None:
    assert Outcome(event=Event.LOSE, reason="nobody knows").exit_code is None


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (1 << 8, "exit 1"),
        (126 << 8, "exit 126: not executable"),
        (127 << 8, "exit 127: command not found"),
        (255 << 8, "exit 255"),
        (9, "killed by SIGKILL"),
        (11 | 0x80, "killed by SIGSEGV"),
        (40, "killed by signal 40"),
    ],
)
def test_a_wait_status_is_told_in_words(status: int, words: str) -> None:
    assert describe(status) == words


def test_leftovers_are_told_by_name_and_number() -> None:
    assert describe_leftovers(()) is None
    assert describe_leftovers(("sleep",)) == (
        "1 process of this job was still running after it ended and was killed: sleep"
    )
    assert describe_leftovers(("python", "sleep")) == (
        "2 processes of this job were still running after it ended and were killed: python, sleep"
    )
    many = describe_leftovers(("a",) * 20, (7, 8))
    assert many == (
        "20 processes of this job were still running after it ended and were killed:"
        " a, a, a, a, a, a, a, a and 12 more; processes of this job could not be killed and may still use"
        " its GPU: pid 7, 8"
    )
