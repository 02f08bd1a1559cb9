from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.job_settings import NAMES, OF_RUNNING, read_settings
from stoker.cli.verbs.edit import find_changes, read_text
from stoker.core.durations import parse_duration, spell_duration
from stoker.errors import UsageError
from stoker.wire import Settings


def test_only_given_settings_are_sent() -> None:
    assert msgspec.json.encode(read_settings([("priority", "5"), ("timeout", "2h")])) == (
        b'{"timeout_s":7200.0,"priority":5}'
    )


def test_none_is_sent_as_none() -> None:
    names = ("name", "project", "timeout", "begin", "after", "after_any", "log")

    settings = read_settings([(name, "none") for name in names])

    values = {name: getattr(settings, name) for name in settings.__struct_fields__}
    given = {name: value for name, value in values.items() if value is not msgspec.UNSET}
    assert len(given) == len(names)
    assert set(given.values()) == {None}


@pytest.mark.parametrize("name", ["priority", "gpus", "retries", "command"])
def test_a_required_setting_cannot_be_none(name: str) -> None:
    with pytest.raises(UsageError, match="it must have a value"):
        read_settings([(name, "none")])


def test_every_field_of_settings_has_a_name() -> None:
    assert len(NAMES) == len(Settings.__struct_fields__)
    assert set(OF_RUNNING) <= set(NAMES)


@given(st.floats(0.001, 1e8))
def test_a_spelled_duration_is_parsed_to_the_same_duration(seconds: float) -> None:
    assert parse_duration(spell_duration(seconds)) == pytest.approx(seconds, abs=5e-4)


@pytest.mark.parametrize(
    ("seconds", "text"), [(90, "1m30s"), (7200, "2h"), (129600, "1d12h"), (0.5, "0.5s")]
)
def test_durations_are_spelled_briefly(seconds: float, text: str) -> None:
    assert spell_duration(seconds) == text


TEXT = "# remark\nname = a\npriority = 0\n\n--- command ---\nx = 1\n# no remark\n"


def test_all_text_below_the_mark_is_the_command() -> None:
    assert read_text(TEXT)["command"] == "x = 1\n# no remark"


def test_a_removed_line_changes_nothing() -> None:
    assert find_changes(TEXT, TEXT.replace("priority = 0\n", "")) == {}
    assert find_changes(TEXT, TEXT.replace("name = a", "name=b")) == {"name": "b"}


def test_a_repeated_setting_is_refused() -> None:
    with pytest.raises(UsageError, match="name is there twice"):
        read_text("name = a\nname = b\n")
