from __future__ import annotations

import math
from datetime import datetime

import pytest

from stoker.core.user_reservation import (
    UserReservation,
    cut,
    is_credible,
    most_at_once,
    next_change,
    reserved_until,
    spell_time,
    stretch_s,
)


def reservation(gpus: int, begin_at: float, end_at: float) -> UserReservation:
    return UserReservation(id=1, gpus=gpus, begin_at=begin_at, end_at=end_at)


def test_reservations_add_up_and_the_last_to_end_comes_first() -> None:
    found = [reservation(2, 10, 50), reservation(1, 20, 90), reservation(4, 60, 70)]
    assert reserved_until(found, 9) == []
    assert reserved_until(found, 10) == [50, 50]
    assert reserved_until(found, 20) == [90, 50, 50]
    assert reserved_until(found, 50) == [90]
    assert reserved_until(found, 90) == []


def test_the_next_change_is_a_begin_or_an_end() -> None:
    found = [reservation(2, 10, 50), reservation(1, 20, 90)]
    assert [next_change(found, now) for now in (0, 10, 20, 50)] == [10, 20, 50, 90]
    assert next_change(found, 90) == math.inf


def test_a_reservation_that_is_too_long_is_cut() -> None:
    assert cut([reservation(1, 10, 50)], 30.0) == [reservation(1, 10, 40)]
    assert cut([reservation(1, 10, 50)], 90.0) == [reservation(1, 10, 50)]
    assert reserved_until(cut([reservation(1, 10, 50)], 0.0), 10) == []


def test_the_most_gpus_at_once_are_those_of_one_moment_of_the_new_reservation() -> None:
    others = [reservation(2, 0, 10), reservation(3, 20, 30), reservation(7, 50, 60)]
    assert most_at_once(reservation(1, 5, 40), others) == 4
    assert most_at_once(reservation(1, 5, 20), others) == 3
    assert most_at_once(reservation(1, 10, 20), others) == 1


@pytest.mark.parametrize(
    ("begin_at", "end_at", "expected_s"),
    [(5, 15, 15), (10, 20, 30), (11, 19, 8), (9, 21, 30), (40, 50, 10)],
)
def test_reservations_that_touch_are_one_stretch(
    begin_at: float, end_at: float, expected_s: float
) -> None:
    others = [reservation(1, 20, 30), reservation(1, 0, 10)]
    assert stretch_s(reservation(1, begin_at, end_at), others) == expected_s


def test_a_stretch_goes_on_over_several_reservations() -> None:
    others = [reservation(1, 30, 40), reservation(1, 20, 30), reservation(1, 50, 60)]
    assert stretch_s(reservation(1, 10, 20), others) == 30


def test_what_another_user_tells_is_believed_as_far_as_the_rules_allow_it() -> None:
    assert is_credible(200.0, 100.0, 100.0)
    assert not is_credible(100.0, 100.0, 100.0)
    assert not is_credible(300.0, 100.0, 100.0)
    assert not is_credible(0, 100.0, 100.0)


def test_a_time_names_the_day_unless_it_is_today() -> None:
    now = datetime(2026, 11, 18, 9, 30).timestamp()
    assert spell_time(datetime(2026, 11, 18, 18, 0).timestamp(), now) == "18:00"
    assert spell_time(datetime(2026, 11, 19, 8, 0).timestamp(), now) == "Thu 08:00"
    assert spell_time(datetime(2026, 12, 24, 8, 0).timestamp(), now) == "2026-12-24 08:00"
    assert spell_time(datetime(2026, 11, 17, 8, 0).timestamp(), now) == "2026-11-17 08:00"
