"""Clean-up process: ends what is left of a foreground run whose supervisor was killed.

It is the parent of the supervisor, and only waits for the supervisor's end. It is a subreaper: every process
that the supervisor leaves becomes its child, whatever environment or session that process has. It works even
if `stoker run` was killed at the same moment. Standard library only, as the supervisor.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from stoker.supervisor import process_tree

_GIVE_UP_S = 10.0
_MAX_NAME_BYTES = 4096


def fork_supervisor() -> int:
    """Fork. The child returns and becomes the supervisor; the parent cleans up after it and never returns.

    Returns the descriptor to which the supervisor has to write its name in cookies.
    """
    process_tree.become_subreaper()  # before the fork: the child may start a job at once
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    supervisor = os.fork()
    if supervisor == 0:
        os.close(reader)
        return writer
    try:
        # The client notices the supervisor's end by the end of this socket.
        os.closerange(3, reader)
        os.closerange(reader + 1, 1 << 16)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(supervisor, 0)
        _end_children(os.read(reader, _MAX_NAME_BYTES).decode())
    finally:
        os._exit(0)


def _end_children(name: str) -> None:
    """Kill all children, except those of another Stoker, until none is left."""
    give_up_at = time.monotonic() + _GIVE_UP_S
    while time.monotonic() < give_up_at:
        left = [
            pid
            for pid in process_tree.living_children()
            if not process_tree.is_foreign(process_tree.read_marks(pid), name)
        ]
        if not left:
            return
        process_tree.send(left, signal.SIGKILL)
        time.sleep(0.001)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
