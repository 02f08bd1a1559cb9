"""Starts a shepherd. Imports little, so that its start-up and its client's can overlap."""

from __future__ import annotations

import os
import socket
import sys
from typing import NamedTuple

_BOOTSTRAP = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    "from stoker.executors.shepherd.main import main; main()"
)
_CLIENT_FD = 3


class Shepherd(NamedTuple):
    """A running shepherd and our end of its socket."""

    pid: int
    socket: socket.socket


def start_shepherd() -> Shepherd:
    """Start a shepherd that is bound to this process: with nothing to do, it ends when we do."""
    ours, theirs = socket.socketpair()
    root = os.path.dirname(__file__)
    for _ in __name__.split(".")[:-1]:
        root = os.path.dirname(root)
    argv = [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, root, str(os.getpid())]
    with theirs, open(os.devnull, "rb") as null:
        actions = [
            (os.POSIX_SPAWN_DUP2, null.fileno(), 0),
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), _CLIENT_FD),
        ]
        pid = os.posix_spawn(
            argv[0], argv, os.environ, file_actions=actions, setsid=True, setsigmask=[]
        )
    return Shepherd(pid, ours)
