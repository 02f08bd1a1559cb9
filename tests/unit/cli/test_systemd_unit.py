from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from stoker.cli import systemd_unit
from stoker.errors import StokerError


def test_the_unit_ends_only_the_daemon_and_restarts_it_after_a_failure() -> None:
    text = systemd_unit.unit_text(["/venv/bin/python", "-m", "stoker.daemon"], {})

    read = configparser.ConfigParser(interpolation=None)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(text)
    service = dict(read["Service"])
    assert service["KillMode"] == "process"
    assert service["OOMPolicy"] == "continue"
    assert service["Restart"] == "on-failure"
    assert service["ExecStart"] == '"/venv/bin/python" "-m" "stoker.daemon"'
    assert read["Install"]["WantedBy"] == "default.target"


def test_special_characters_of_systemd_are_escaped() -> None:
    text = systemd_unit.unit_text(["/my $HOME/100%/py"], {"STOKER_HOME": '/a "b"\\c'})

    assert 'ExecStart="/my $$HOME/100%%/py"\n' in text
    assert 'Environment="STOKER_HOME=/a \\"b\\"\\\\c"\n' in text


def test_unprintable_text_in_a_unit_is_refused() -> None:
    with pytest.raises(StokerError, match="unprintable characters"):
        systemd_unit.unit_text(["/a\nb"], {})


def test_every_home_has_its_own_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/config")

    names = {systemd_unit.unit_name(home) for home in (None, "/a", "/b")}

    assert len(names) == 3
    assert (
        systemd_unit.unit_path(systemd_unit.unit_name(None))
        == "/config/systemd/user/stoker.service"
    )


@pytest.fixture
def loginctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "loginctl"


@pytest.mark.parametrize(
    ("linger", "kill", "count"),
    [("yes", "yes", 0), ("yes", "no", 0), ("no", "no", 1), ("no", "yes", 2)],
)
def test_settings_that_end_jobs_at_logout_are_warned_of(
    loginctl: Path, linger: str, kill: str, count: int
) -> None:
    loginctl.write_text(
        f'#!/bin/sh\ncase "$*" in *Linger*) echo {linger};; *) echo {kill};; esac\n'
    )
    loginctl.chmod(0o755)

    warnings = systemd_unit.warnings("ada")

    assert len(warnings) == count
    assert count == 0 or "loginctl enable-linger ada" in warnings[0]


def test_without_loginctl_there_is_no_warning(loginctl: Path) -> None:
    loginctl.write_text("#!/bin/sh\nexit 1\n")
    loginctl.chmod(0o755)

    assert systemd_unit.warnings("ada") == []
