from __future__ import annotations

from stoker.core.stop_times import FIRST_GRACE_S, MOST_GRACE_S, StopTimes


def learn(*times: tuple[float, bool]) -> StopTimes:
    found = StopTimes()
    for took_s, killed in times:
        found = found.learn(took_s, killed=killed)
    return found


def test_a_kind_of_which_nothing_is_known_has_more_than_the_usual_grace() -> None:
    assert StopTimes().grace_s(10.0) == FIRST_GRACE_S


def test_the_grace_is_three_times_what_jobs_took_lately() -> None:
    assert learn((12.0, False), (30.0, False), (20.0, False)).grace_s(10.0) == 90.0


def test_the_grace_is_never_shorter_than_the_usual_one_nor_longer_than_the_longest() -> None:
    assert learn((0.1, False)).grace_s(10.0) == 10.0
    assert learn((200.0, False)).grace_s(10.0) == MOST_GRACE_S


def test_only_the_last_preemptions_count() -> None:
    assert learn((70.0, False), *[(5.0, False)] * 8).grace_s(10.0) == 15.0


def test_the_grace_doubles_after_a_kill_until_a_job_ends_by_itself() -> None:
    assert learn((60.0, True)).grace_s(10.0) == 120.0
    assert learn((60.0, True), (100.0, False)).grace_s(10.0) == MOST_GRACE_S
    assert learn((60.0, True), (20.0, False)).grace_s(10.0) == 60.0


def test_jobs_that_never_listen_get_the_usual_grace() -> None:
    assert learn((60.0, True), (120.0, True), (MOST_GRACE_S, True)).grace_s(10.0) == 10.0
    known_to_listen = learn((5.0, False), (MOST_GRACE_S, True))
    assert known_to_listen.grace_s(10.0) == MOST_GRACE_S
