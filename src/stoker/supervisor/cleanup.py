"""Ends what is left of a foreground run whose supervisor was killed.

The parent of the supervisor. It does nothing but wait for the supervisor's end. It is a subreaper, so that
every process that the supervisor leaves becomes its child, whatever environment or session that has. It does
its work also when `stoker run` was killed in the same moment. Standard library only, as the supervisor.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from stoker.supervisor import process_tree

_GIVE_UP_S = 10.0
_MOST_NAME_BYTES = 4096


def fork_supervisor() -> int:
    """Go on as the supervisor, in a child; the parent cleans up after it and never returns.

    Returns the descriptor to which the supervisor has to write the name in its cookies.
    """
    process_tree.become_subreaper()  # before the fork: a job may start before this process runs again
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    supervisor = os.fork()
    if supervisor == 0:
        os.close(reader)
        return writer
    try:
        # The client hears of the supervisor's end by the end of this socket.
        os.closerange(3, reader)
        os.closerange(reader + 1, 1 << 16)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(supervisor, 0)
        _end_children(os.read(reader, _MOST_NAME_BYTES).decode())
    finally:
        os._exit(0)


def _end_children(name: str) -> None:
    """Kill all children that are no other Stoker's until there are none; what they leave is ours, too."""
    give_up_at = time.monotonic() + _GIVE_UP_S
    while time.monotonic() < give_up_at:
        left = [
            pid
            for pid in process_tree.living_children()
            if not process_tree.is_foreign(process_tree.marks_of(pid), name)
        ]
        if not left:
            return
        process_tree.send(left, signal.SIGKILL)
        time.sleep(0.001)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
