"""Entry point of a private engine. Starts the supervisor first, so that both start-ups overlap."""

from __future__ import annotations

import os
import signal
import socket
import sys

from stoker.supervisor.launcher import start_supervisor


def main() -> None:
    """Serve the client whose pid and whose end of a socketpair are the arguments."""
    pid, fd = map(int, sys.argv[1:3])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client decides what ends
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.set_inheritable(fd, False)
    supervisor = start_supervisor()
    from stoker.task.engine_host import serve

    serve(socket.socket(fileno=fd), pid, supervisor)
