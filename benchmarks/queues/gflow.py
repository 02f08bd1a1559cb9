"""gflow's daemon in a home of its own, with a tmux server of its own for its jobs."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

from benchmarks.errors import BenchError
from benchmarks.process import no_leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.arena import Arena

# Equal jobs go in with one call; their number is that of the lines on stdin.
SCRIPT = (
    "n=$(wc -l) && gbatch --auto-close --max-concurrent 4 --param i=1:$n -- {command} '{{i}}'"
    " && while gqueue -o csv | grep -Eq 'Queued|Running'; do sleep 0.02; done"
)
_PATIENCE_S = 10.0


@contextlib.contextmanager
def open_gflow(arena: Arena) -> Iterator[dict[str, str]]:
    """Lend an environment with a daemon in it; the daemon and its tmux end with the block."""
    with (
        tempfile.TemporaryDirectory(prefix="gflow-", dir=arena.folder) as folder,
        no_leftovers("gflow"),
    ):
        env = _furnish(arena, os.path.abspath(folder))
        # Without a session that stays, tmux's server goes with each job and takes the next one along.
        subprocess.run(["tmux", "new", "-d", "-s", "keep"], env=env, check=True)
        daemon = subprocess.Popen(
            [arena.peers.gflow.path], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _wait_until_up(env)
            yield env
        finally:
            daemon.terminate()
            daemon.wait()
            subprocess.run(["tmux", "kill-server"], env=env, check=False)


def _furnish(arena: Arena, home: str) -> dict[str, str]:
    programs = os.path.dirname(os.path.abspath(arena.peers.gflow.path))
    os.makedirs(os.path.join(home, "config", "gflow"))
    os.mkdir(os.path.join(home, "tmux"), 0o700)
    with open(os.path.join(home, "config", "gflow", "gflow.toml"), "w", encoding="utf-8") as file:
        file.write(f'[daemon]\nhost = "localhost"\nport = {_free_port()}\n')
    # tmux starts login shells, and gflow's jobs report their end with a program of its own.
    with open(os.path.join(home, ".profile"), "w", encoding="utf-8") as file:
        file.write(f"PATH='{programs}':/usr/bin:/bin\n")
    return {
        **arena.env,
        "PATH": f"{programs}:{arena.env['PATH']}",
        "HOME": home,
        "XDG_CONFIG_HOME": os.path.join(home, "config"),
        "XDG_DATA_HOME": os.path.join(home, "data"),
        "XDG_RUNTIME_DIR": home,
        "TMUX_TMPDIR": os.path.join(home, "tmux"),
    }


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("localhost", 0))
        return int(sock.getsockname()[1])


def _wait_until_up(env: dict[str, str]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while subprocess.run(["gqueue"], env=env, capture_output=True, check=False).returncode != 0:
        if time.monotonic() > deadline:
            raise BenchError(f"gflowd does not answer after {_PATIENCE_S:.0f} s")
        time.sleep(0.1)
