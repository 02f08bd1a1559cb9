"""Fake `nvidia-cuda-mps-control`: it starts, is found and ends, and has no other function.

    python -m stoker.testing.mps -d
    echo quit | python -m stoker.testing.mps

It imports only the standard library, because each query starts it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

_PID_FILE = "nvidia-cuda-mps-control.pid"


def main() -> int:
    """Start the daemon, or do what standard input asks."""
    path = os.path.join(os.environ["CUDA_MPS_PIPE_DIRECTORY"], _PID_FILE)
    pid = _find(path)
    if sys.argv[1:] == ["-d"]:
        if pid is not None:
            print("An instance of this daemon is already running")
            return 1
        daemon = subprocess.Popen(
            ["sleep", "infinity"], start_new_session=True, stdin=subprocess.DEVNULL
        )
        with open(path, "w", encoding="ascii") as file:
            file.write(str(daemon.pid))
        return 0
    if pid is None:
        print("Cannot find MPS control daemon process")
        return 1
    if sys.stdin.read().strip() == "quit":
        os.kill(pid, signal.SIGKILL)
        os.unlink(path)
    return 0


def _find(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            pid = int(file.read())
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    return pid


if __name__ == "__main__":
    sys.exit(main())
