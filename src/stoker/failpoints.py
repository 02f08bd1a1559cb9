"""Named places at which a test can kill this very process; nothing happens unless one is armed.

`STOKER_FAILPOINT=NAME:N` sends SIGKILL the N-th time that place is reached. Standard library only.
"""

from __future__ import annotations

import os
import signal

_name, _, _count = os.environ.get("STOKER_FAILPOINT", "").partition(":")
_left = int(_count or 1)
is_armed = bool(_name)


def reach(name: str) -> None:
    """Die here, if this is the place and the time."""
    global _left
    if name == _name:
        _left -= 1
        if _left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
