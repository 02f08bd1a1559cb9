from __future__ import annotations

from pathlib import Path

import pytest

from stoker.cli.main import main

TIMES = "write +10m, 22:00, 2027-01-31 or 2027-01-31T08:00"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("STOKER_HOME", str(home))
    return home


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("2", "for how long? stoker reserve 2 --for 4h"),
        ("--for 2h", "how many GPUs? stoker reserve 1 --for 2h"),
        ("--from 14:00", "how many GPUs? stoker reserve 1 --for 4h"),
        ("0 --for 2h", "'0' is no number of GPUs: stoker reserve 1 --for 2h"),
        ("two --for 2h", "'two' is no number of GPUs: stoker reserve 1 --for 2h"),
        ("-1 --for 2h", "'-1' is no number of GPUs: stoker reserve 1 --for 2h"),
        ("² --for 2h", "'²' is no number of GPUs: stoker reserve 1 --for 2h"),
        ("2 --for 4", "--for: '4' has no unit: write 4s, 4m or 4h"),
        ("2 --for 9999w", "--for: 9999w is too long: 366d at most"),
        ("2 --for 4h --from 25:00", f"--from: '25:00' is not a time of day: {TIMES}"),
        ("2 --for 4h --from 2020-01-01", f"--from: 2020-01-01 lies in the past: {TIMES}"),
        ("--end x", "--end: 'x' is no id of a reservation: stoker reserve shows them"),
        ("--end 0", "--end: '0' is no id of a reservation: stoker reserve shows them"),
        ("2 --for 4h --end 1", "--end stands alone: stoker reserve --end 1"),
    ],
)
def test_a_wrong_command_line_gets_one_line_and_starts_no_daemon(
    home: Path, capsys: pytest.CaptureFixture[str], words: str, text: str
) -> None:
    assert main(["reserve", *words.split()]) == 2
    assert capsys.readouterr().err == f"stoker: {text}\n"
    assert not home.exists()


def test_a_queue_that_never_existed_has_reserved_nothing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reserve"]) == 0
    assert main(["reserve", "--json"]) == 0
    assert capsys.readouterr().out == "nothing is reserved: stoker reserve 1 --for 4h\n[]\n"
