"""Signals as people name them."""

from __future__ import annotations

import signal

from stoker.errors import UsageError

_STOPS = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT}


def parse_signal(text: str) -> int:
    """The number of `USR1`, `SIGUSR1`, `usr1` or `10`; one that cannot end a job is refused."""
    word = text.upper().removeprefix("SIG")
    try:
        found = signal.Signals(int(word)) if word.isdigit() else signal.Signals[f"SIG{word}"]
    except (KeyError, ValueError):
        raise UsageError(
            f"--signal {text}: there is no such signal; write TERM, INT, USR1 …"
        ) from None
    if found in _STOPS:
        raise UsageError(f"--signal {text}: that one stops a job and never ends it")
    return found.value


def format_signal(number: int) -> str:
    """A signal's name."""
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)
