"""Makes the process of an attempt: its signals, its log, and the shell where the kernel needs one."""

from __future__ import annotations

import os
from typing import Any

from stoker.supervisor.signals import RESET_SIGNALS
from stoker.supervisor.slot_queues import lack_of_descriptors


def spawn_process(
    argv: list[str],
    env: dict[bytes, bytes],
    actions: list[tuple[int, int, int]],
    shell: str,
    apart: dict[str, Any],
) -> int:
    """Start a process, by the shell if it is no executable; `apart` tells it from other jobs' processes."""
    try:
        return os.posix_spawn(
            argv[0],
            argv,
            env,
            file_actions=actions,
            setsigmask=[],
            setsigdef=RESET_SIGNALS,
            **apart,
        )
    except OSError:
        if argv[0] == shell:
            raise
        # Not an executable after all: the shell knows what to do or what to say.
        return spawn_process([shell, "-c", '"$0" "$@"', *argv], env, actions, shell, apart)


def open_log(path: str) -> int:
    """Open a log to append to. A pipe that nobody reads is refused: other jobs would wait for it too."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, 0o666)
    os.set_blocking(fd, True)
    return fd


def reason_of(error: OSError) -> str:
    """Why a start has failed, in printable characters."""
    text = lack_of_descriptors(error) or error.strerror or str(error)
    if isinstance(error.filename, str):
        name = os.fsencode(error.filename).decode("utf-8", "backslashreplace")
        return f"{text}: {name}"
    return text
