"""Signals of a supervisor: which it ignores, which wake it up, and which are reset for jobs."""

from __future__ import annotations

import os
import signal

# Python ignores some signals and the supervisor others; jobs start with the default for all of them.
RESET_SIGNALS = [
    int(getattr(signal, name))
    for name in ("SIGPIPE", "SIGXFSZ", "SIGINT", "SIGHUP", "SIGQUIT", "SIGTERM", "SIGCHLD")
]


def wake_on_child() -> int:
    """Return a descriptor that becomes readable when a child ends."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _signum, _frame: None)
    return reader


def ignore_signals() -> None:
    """Ignore the signals that are meant for the client or come from a terminal."""
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
