from __future__ import annotations

import signal

import pytest

from stoker.cli.signals import format_signal, parse_signal
from stoker.errors import UsageError


@pytest.mark.parametrize("text", ["USR1", "SIGUSR1", "usr1", "sigusr1", str(int(signal.SIGUSR1))])
def test_signals_are_named_in_many_ways(text: str) -> None:
    assert parse_signal(text) == signal.SIGUSR1
    assert format_signal(parse_signal(text)) == "USR1"


@pytest.mark.parametrize("text", ["", "NOPE", "0", "99", "-1", "STOP", "TSTP", "CONT"])
def test_what_is_none_or_never_ends_a_job_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_signal(text)
