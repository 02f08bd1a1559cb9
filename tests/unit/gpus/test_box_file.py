from __future__ import annotations

import grp
import os
import pwd
import time
from pathlib import Path

import pytest

from stoker.core.box_rules import Moment
from stoker.gpus.box_file import (
    BoxFile,
    RulesError,
    find_person,
    find_unknown,
    local_moment,
    parse_text,
)

GOOD = "[shares]\nann = 2\n"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path))
    return tmp_path / "box.toml"


def test_without_a_file_there_are_no_rules(path: Path) -> None:
    box_file = BoxFile()
    box_file.refresh()
    assert box_file.rules.shares == {}
    assert box_file.error is None


def test_a_changed_file_is_read_again(path: Path) -> None:
    box_file = BoxFile()
    path.write_text(GOOD)
    assert box_file.refresh()
    assert not box_file.refresh()
    path.write_text("[shares]\nann = 3.5\n")
    assert box_file.refresh()
    assert box_file.rules.shares == {"ann": 3.5}
    path.unlink()
    assert box_file.refresh()
    assert box_file.rules.shares == {}


def test_a_user_may_reserve_for_a_day_unless_the_rules_say_otherwise(path: Path) -> None:
    box_file = BoxFile()
    assert box_file.longest_reservation_s(os.getuid()) == 86_400.0
    path.write_text('[limits]\nreserve = "8h"\n')
    box_file.refresh()
    assert box_file.longest_reservation_s(os.getuid()) == 8 * 3600.0


def test_of_a_file_with_a_mistake_nothing_counts(path: Path) -> None:
    box_file = BoxFile()
    path.write_text(GOOD)
    box_file.refresh()
    path.write_text("[shares]\nann = 9\nbob = -1\n")
    assert box_file.refresh()
    assert box_file.error == f"{path}, line 3: bob = -1: write a number above 0"
    assert box_file.rules.shares == {"ann": 2.0}
    path.write_text(GOOD)
    assert box_file.refresh()
    assert box_file.error is None


def test_the_last_good_rules_count_also_after_a_restart(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.toml"
    path.write_text(GOOD)
    BoxFile(str(copy)).refresh()
    path.write_text("[shares]\nann = -1\n")
    later = BoxFile(str(copy))
    later.refresh()
    assert later.rules.shares == {"ann": 2.0}
    assert later.error == f"{path}, line 2: ann = -1: write a number above 0"
    path.unlink()
    later.refresh()
    assert not copy.exists()
    path.write_text("[shares]\nann = -1\n")
    last = BoxFile(str(copy))
    last.refresh()
    assert last.rules.shares == {}


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_a_file_that_others_can_write_does_not_count(path: Path, mode: int) -> None:
    path.write_text(GOOD)
    path.chmod(mode)
    box_file = BoxFile()
    box_file.refresh()
    assert box_file.error is not None
    assert "others could write it" in box_file.error
    assert box_file.rules.shares == {}


def test_a_link_or_pipe_does_not_count(path: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text(GOOD)
    path.symlink_to(tmp_path / "other")
    box_file = BoxFile()
    box_file.refresh()
    assert box_file.error == f"{path}: it is a link: put the file itself there"
    path.unlink()
    os.mkfifo(path)
    box_file.refresh()
    assert box_file.error is not None
    assert "no plain file" in box_file.error


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[shares]\nann = \n", 2),
        ('[limits]\ngpus = 2\n\n[limits."@students"]\n\n"gpus" = "x"\n', 6),
        ('[[reservations]]\ngpus = "0"\nfor = "a"\n\n[[reservations]]\nfor = "a"\ngpus = "y"\n', 7),
        ('[[reservations]]\ngpus = "0"\nfor = "a"\n\n[[reservations]]\ngpus = "1"\n', 5),
        ("\n\n[share]\nx = 1\n", 3),
        ("[limits]\ngpus = [", 2),  # the file ends too early
    ],
)
def test_the_line_of_a_mistake_is_named(text: str, line: int) -> None:
    with pytest.raises(RulesError, match=rf"rules\.toml, line {line}: "):
        parse_text(text, "rules.toml")


def test_users_and_groups_that_the_machine_does_not_know_are_found() -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    group = grp.getgrgid(os.getgid()).gr_name
    rules = parse_text(
        f"""
[shares]
{user} = 2
"no-such user" = 2
[limits."@no-such"]
gpus = 1
[[reservations]]
gpus = "0"
for = ["{user}", "@{group}", "no-such user", "@no\\u0000such"]
""",
        "box.toml",
    )
    assert find_unknown(rules) == ["no-such user", "@no-such", "@no\0such"]


def test_a_user_has_the_names_of_its_groups() -> None:
    person = find_person(os.getuid())
    assert person.name == pwd.getpwuid(os.getuid()).pw_name
    assert person.groups
    assert find_person(4_000_000).groups == frozenset()


BERLIN = "/usr/share/zoneinfo/Europe/Berlin"


@pytest.mark.skipif(not os.path.exists(BERLIN), reason="there is no tzdata")
@pytest.mark.parametrize(
    ("utc_s", "moment"),
    [
        (1_792_890_000 - 1, Moment("2026-10-25", 6, 2 * 60 + 59)),  # the clock goes back
        (1_792_890_000, Moment("2026-10-25", 6, 2 * 60)),
        (1_774_746_000 - 1, Moment("2026-03-29", 6, 60 + 59)),  # and forward
        (1_774_746_000, Moment("2026-03-29", 6, 3 * 60)),
    ],
)
def test_a_moment_is_a_time_of_the_machines_zone(
    monkeypatch: pytest.MonkeyPatch, utc_s: int, moment: Moment
) -> None:
    monkeypatch.setattr("stoker.gpus.box_file._ZONE_FILE", BERLIN)
    monkeypatch.setenv("TZ", "America/New_York")  # of a user who sits elsewhere
    time.tzset()
    try:
        assert local_moment(float(utc_s)) == moment
    finally:
        monkeypatch.undo()
        time.tzset()


def test_without_a_zone_file_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.gpus.box_file._ZONE_FILE", "/nonexistent")
    moment = local_moment(1_000_000_000.0)
    assert 0 <= moment.minute < 1440
    assert moment.date.startswith("2001-09-0")
