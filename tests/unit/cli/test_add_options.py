from __future__ import annotations

import signal

import pytest

from stoker.cli.add_options import read_signal


@pytest.mark.parametrize("text", ["USR1", "SIGUSR1", "usr1", "sigusr1", str(int(signal.SIGUSR1))])
def test_signals_are_parsed_by_name_and_number(text: str) -> None:
    assert read_signal(text) == signal.SIGUSR1


@pytest.mark.parametrize("text", ["", "NOPE", "0", "99", "-1", "STOP", "TSTP", "CONT"])
def test_unknown_signals_and_signals_that_end_no_job_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write TERM, INT, USR1"):
        read_signal(text)
