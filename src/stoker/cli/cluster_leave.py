"""How a node tells the head that it leaves: `stoker cluster leave`, and the end of `join --foreground`."""

from __future__ import annotations

import contextlib
import glob
import os
import time

from stoker.cli.messages import note
from stoker.cluster import ray_supervisor_control, settings

_LEAVE_S = 15.0
_LEAVE_WITH_FILES_S = 1800.0


def announce_leave(home: str, most_s: float = _LEAVE_WITH_FILES_S) -> None:
    """Tell the head, which then runs this machine's jobs elsewhere.

    Wait until it knows and has their checkpoints and results. Give up if the head is not heard any more, or
    Ray has ended here: no agent is left then.
    """
    path = settings.leaving_path(home)
    with open(path, "w", encoding="ascii"):
        pass
    began = time.time()
    has_noted = False
    while (
        os.path.exists(path)
        and ray_supervisor_control.ray_supervisor_pid(home)
        and time.time() < began + most_s
    ):
        if time.time() > max(began, heard_at(home)) + _LEAVE_S:
            break
        if not has_noted and time.time() > began + _LEAVE_S:
            note("waiting until the head has the checkpoints and results of the jobs here")
            has_noted = True
        time.sleep(0.05)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def heard_at(home: str) -> float:
    """Return when an agent of this machine was last called by a head."""
    pattern = os.path.join(glob.escape(settings.folder_of(home)), "queues/*/lease_file")
    times = [0.0]
    for path in glob.glob(pattern):
        with contextlib.suppress(FileNotFoundError):
            times.append(os.stat(path).st_mtime)
    return max(times)
