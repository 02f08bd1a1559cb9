"""Start of processes that outlive their starter, in a session of their own."""

from __future__ import annotations

import os
import sys

from stoker.errors import StokerError
from stoker.open_files import with_original_limit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The parent ends at once, so the started process becomes a child of init and leads no session.
_DETACH = "import os,sys;os.fork() and os._exit(0);os.execv(sys.argv[1],sys.argv[1:])"


def start(
    what: str,
    words: Sequence[str],
    log: str,
    environment: Mapping[str, str],
    ready_fd: int | None = None,
) -> None:
    """Start this interpreter with the arguments `words` and its output in a log; `what` names it in errors.

    It inherits `ready_fd`, and gets its number by `--ready-fd`.
    """
    import subprocess

    passed = () if ready_fd is None else (ready_fd,)
    ready = [] if ready_fd is None else ["--ready-fd", str(ready_fd)]
    output = open_log(log)
    try:
        subprocess.run(
            with_original_limit(
                [sys.executable, "-I", "-S", "-c", _DETACH, sys.executable, *words, *ready]
            ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=environment,
            pass_fds=passed,
            start_new_session=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise StokerError(f"cannot start {what} with {sys.executable}: {error}") from None
    finally:
        os.close(output)


def start_and_wait(
    what: str,
    words: Sequence[str],
    log: str,
    environment: Mapping[str, str],
    patience_s: float,
) -> str:
    """Start a process; return the line that it writes when it is ready or fails, empty if it just ends."""
    reader, writer = os.pipe()
    try:
        try:
            start(what, words, log, environment, writer)
        finally:
            os.close(writer)
        return _read_line(reader, patience_s)
    finally:
        os.close(reader)


def open_log(path: str) -> int:
    """Open a log for appending."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StokerError(f"cannot write {path}: {error.strerror}") from None


def _read_line(reader: int, patience_s: float) -> str:
    import select
    import time

    poll = select.poll()
    poll.register(reader, select.POLLIN)
    deadline = time.monotonic() + patience_s
    text = b""
    while not text.endswith(b"\n"):
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not poll.poll(left_s * 1000):
            return f"error: it was not up after {patience_s:.0f}s"
        data = os.read(reader, 4096)
        if not data:
            break
        text += data
    return text.decode(errors="replace").strip()
