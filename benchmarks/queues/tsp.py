"""task-spooler in a folder of its own: a server, and one client process for every job."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from typing import TYPE_CHECKING

from benchmarks.process import no_leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.arena import Arena

SLOTS = 4
# Its client adds one job a call. What it says of a job that has begun is not its end: look until
# none is left. -n keeps no output, which Stoker does keep.
SCRIPT = (
    "tsp -C && xargs -d '\\n' -n1 tsp -n sh -c && tsp -w"
    " && while tsp -l | grep -Eq 'queued|running'; do :; done"
)


@contextlib.contextmanager
def open_tsp(arena: Arena) -> Iterator[dict[str, str]]:
    """Lend an environment with a server in it; the server ends with the block."""
    with (
        tempfile.TemporaryDirectory(prefix="tsp-", dir=arena.folder) as folder,
        no_leftovers("tsp"),
    ):
        env = {
            **arena.env,
            "TMPDIR": os.path.abspath(folder),
            "TS_SOCKET": os.path.abspath(os.path.join(folder, "socket")),
            "TS_MAXCONN": "2000",
        }
        tsp = arena.peers.tsp.path
        subprocess.run([tsp, "-S", str(SLOTS)], env=env, check=True)
        try:
            yield env
        finally:
            subprocess.run([tsp, "-K"], env=env, check=False)
