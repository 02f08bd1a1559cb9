"""The terminal below a live view: whether this program may draw there, and an echo that leaves it alone."""

from __future__ import annotations

import contextlib
import os
import termios
from collections.abc import Iterator

_LOCAL = 3  # index of the local flags


def is_in_front(fd: int) -> bool:
    """Whether this process is in the foreground of its terminal.

    A job in the background of a shell must not draw over what its user types.
    """
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return True  # it is not the controlling terminal: no shell shares it


@contextlib.contextmanager
def without_echoed_controls(fd: int) -> Iterator[None]:
    """Let the terminal echo no `^C`: at the end of a full line it would move the view by a line."""
    try:
        before = termios.tcgetattr(fd)
    except termios.error:
        yield
        return
    quiet = [*before]
    quiet[_LOCAL] &= ~termios.ECHOCTL
    termios.tcsetattr(fd, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        # In the background the terminal has the settings of the shell.
        with contextlib.suppress(termios.error):
            if is_in_front(fd):
                termios.tcsetattr(fd, termios.TCSANOW, before)
