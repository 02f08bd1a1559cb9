"""Parsing and formatting of signal names."""

from __future__ import annotations

import signal

from stoker.errors import UsageError

_STOPS = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT}


def parse_signal(text: str) -> int:
    """Parse `USR1`, `SIGUSR1`, `usr1` or `10`; raises UsageError for a signal that cannot end a job."""
    word = text.upper().removeprefix("SIG")
    try:
        found = signal.Signals(int(word)) if word.isdigit() else signal.Signals[f"SIG{word}"]
    except (KeyError, ValueError):
        raise UsageError(f"--signal {text}: no such signal: write TERM, INT, USR1 …") from None
    if found in _STOPS:
        raise UsageError(
            f"--signal {text}: it stops a job and does not end it: write TERM, INT, USR1 …"
        )
    return found.value


def format_signal(number: int) -> str:
    """Return a signal's name without SIG."""
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)
