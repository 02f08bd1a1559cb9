"""Signals of a supervisor: which it ignores, which wake it up, and which its jobs get back."""

from __future__ import annotations

import os
import signal

# Python ignores some signals and the supervisor others; jobs get all of them back as they should be.
RESET_SIGNALS = [
    int(getattr(signal, name))
    for name in ("SIGPIPE", "SIGXFSZ", "SIGINT", "SIGHUP", "SIGQUIT", "SIGTERM", "SIGCHLD")
]


def wake_on_child() -> int:
    """A descriptor that is readable when a child has ended."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _signum, _frame: None)
    return reader


def ignore_signals() -> None:
    """Be ended by nobody who wanted to end the client, or a terminal."""
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
