from __future__ import annotations

import datetime
from typing import Any

import pytest

from stoker.core.box_rules import (
    BoxRules,
    Limits,
    Moment,
    Person,
    RuleError,
    describe_rules,
    parse_rules,
)

ANN = Person("ann", frozenset({"staff"}))
BOB = Person("bob", frozenset({"students", "course"}))
MONDAY_15 = Moment("2026-11-16", 0, 15 * 60)
MONDAY_16 = Moment("2026-11-16", 0, 16 * 60)
COURSE = {"gpus": "0-3", "for": ["@course"], "days": "Mon", "from": "14:00", "to": "16:00"}


def test_a_users_own_share_comes_before_that_of_its_groups() -> None:
    rules = parse_rules({"shares": {"ann": 2, "@staff": 9, "@students": 0.5}})
    assert rules.share_of(ANN) == 2.0
    assert rules.share_of(BOB) == 0.5
    assert rules.share_of(Person("eve")) == 1.0


def test_limits_of_a_group_replace_those_of_all() -> None:
    students = {"gpus": 2, "reserve": "30m"}
    limits = {"gpus": 4, "hours": 48, "reserve": "8h", "preemptible": "10m", "@students": students}
    rules = parse_rules({"limits": limits})
    assert rules.limits_for(ANN) == Limits(4, 48 * 3600.0, 8 * 3600.0)
    assert rules.limits_for(BOB) == Limits(2, 48 * 3600.0, 1800.0)
    assert rules.preemptible_s == 600.0


@pytest.mark.parametrize(("text", "expected_s"), [("8h", 28800.0), ("0", 0.0), (0, 0.0)])
def test_reservations_of_users_can_be_limited_and_forbidden(
    text: object, expected_s: float
) -> None:
    assert parse_rules({"limits": {"reserve": text}}).limits.reserve_s == expected_s


def test_a_weekly_reservation_begins_and_ends() -> None:
    rules = parse_rules({"reservations": [{**COURSE, "name": "the course"}]})
    assert rules.is_timed
    assert rules.why_closed(["2"], ANN, MONDAY_15) == "is for the course only until 16:00"
    assert rules.why_closed(["2"], BOB, MONDAY_15) is None
    assert rules.why_closed(["4"], ANN, MONDAY_15) is None
    assert rules.why_closed(["2"], ANN, MONDAY_16) is None
    assert rules.why_closed(["2"], ANN, Moment("2026-11-17", 1, 15 * 60)) is None


@pytest.mark.parametrize(
    ("moment", "is_closed"),
    [
        (Moment("2026-11-16", 0, 21 * 60 + 59), False),
        (Moment("2026-11-16", 0, 22 * 60), True),
        (Moment("2026-11-17", 1, 5 * 60 + 59), True),
        (Moment("2026-11-17", 1, 6 * 60), False),
        (Moment("2026-11-17", 1, 23 * 60), False),
        (Moment("2026-11-16", 0, 60), False),
    ],
)
@pytest.mark.parametrize("day", [{"days": "Mon"}, {"date": datetime.date(2026, 11, 16)}])
def test_a_reservation_over_midnight_ends_on_the_next_day(
    day: dict[str, Any], moment: Moment, is_closed: bool
) -> None:
    night = {"gpus": "0", "for": "ann", "from": "22:00", "to": "06:00", **day}
    rules = parse_rules({"reservations": [night]})
    assert (rules.why_closed(["0"], BOB, moment) is not None) is is_closed
    assert describe_rules(rules)[0].endswith("22:00 to 06:00 of the next day")


def test_gpus_for_some_only() -> None:
    rules = parse_rules({"reservations": [{"gpus": "6", "for": "ann"}]})
    assert not rules.is_timed
    assert rules.why_closed(["6", "7"], BOB, MONDAY_15) == "is for ann only"
    assert rules.why_closed(["6"], ANN, MONDAY_15) is None


def test_a_reservation_of_one_day_and_of_days_over_the_weekend() -> None:
    day = {"gpus": "0", "for": "ann", "date": datetime.date(2026, 11, 17)}
    weekend = {"gpus": "1", "for": "ann", "days": "Fri-Mon", "from": datetime.time(8)}
    rules = parse_rules({"reservations": [day, weekend]})
    assert rules.why_closed(["0"], BOB, MONDAY_15) is None
    assert rules.why_closed(["0"], BOB, Moment("2026-11-17", 1, 0)) is not None
    assert rules.reservations[1].days == {4, 5, 6, 0}


@pytest.mark.parametrize(
    ("rules", "text", "key"),
    [
        ({"share": {}}, "there is no table share", None),
        ({"shares": 3}, "shares is a table", None),
        ({"shares": {"ann": 0}}, "ann = 0: write a number above 0", "ann"),
        ({"limits": {"gpus": "all"}}, "gpus = 'all': write how many GPUs", "gpus"),
        ({"limits": {"hour": 3}}, "there is no limit hour", "hour"),
        ({"limits": {"reserve": 8}}, "reserve: '8' has no unit", "reserve"),
        ({"limits": {"@x": {"reserve": "long"}}}, "'long' is not a duration", "reserve"),
        ({"limits": {"preemptible": 10}}, "preemptible: '10' has no unit", "preemptible"),
        ({"reservations": {}}, "write [[reservations]]", None),
        ({"reservations": [{**COURSE, "gpus": "0-x"}]}, "write the numbers of GPUs", "gpus"),
        ({"reservations": [{**COURSE, "gpus": "3-0"}]}, "is no range of GPUs", "gpus"),
        ({"reservations": [{**COURSE, "days": "Monday"}]}, "'Monday' is no day", "days"),
        ({"reservations": [{**COURSE, "from": "25:00"}]}, "write a time of the day", "from"),
        ({"reservations": [{**COURSE, "to": "14:00"}]}, "write another time", "to"),
        ({"reservations": [{**COURSE, "for": []}]}, "write the users and @groups", "for"),
        ({"reservations": [{**COURSE, "date": "soon"}]}, "write a day", "date"),
        ({"reservations": [{**COURSE, "who": "x"}]}, "there is no key who", "who"),
    ],
)
def test_a_mistake_is_named(rules: dict[str, Any], text: str, key: str | None) -> None:
    with pytest.raises(RuleError) as raised:
        parse_rules(rules)
    assert text in str(raised.value)
    assert raised.value.key == key


def test_rules_are_shown_as_lines() -> None:
    students = {"gpus": 2, "reserve": "0"}
    limits = {"gpus": 4, "hours": 48, "reserve": "8h", "preemptible": "10m", "@students": students}
    found = {"shares": {"ann": 2}, "limits": limits, "reservations": [COURSE]}
    assert describe_rules(parse_rules(found)) == [
        "share of ann: 2",
        "GPUs of everybody at once: at most 4",
        "job of everybody: at most 48 hours",
        "reservation of everybody: at most 8h",
        "GPUs of @students at once: at most 2",
        "reservation of @students: none",
        "a preemptible job makes room after 10m",
        "GPU 0, 1, 2, 3: for @course only, Mon 14:00 to 16:00",
    ]
    assert describe_rules(BoxRules()) == []
