"""Exit recorder: parent of a daemon's supervisor. Records how jobs end while no supervisor watches them.

It only waits for the supervisor's end, so it costs nothing for each job. It is a subreaper: if the supervisor
is killed, its jobs become children of this process. It writes how each of them has ended into the exit file
(`exit_file.py`), and only then reaps it. It ends with its last child.

Neither its name nor its command line contains "python" or "stoker": `pkill -9 -f python` ends the supervisor,
and not its recorder. Standard library only, as the supervisor.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time

from stoker.supervisor import process_tree
from stoker.supervisor.exit_file import Exit, ExitWriter

TITLE = b"exit-recorder"

_RETRY_S = 1.0
_COMM = "/proc/self/comm"
_SESSION, _UTIME, _STIME, _CUTIME, _CSTIME, _TICKS = (
    3,
    11,
    12,
    13,
    14,
    19,
)  # fields of /proc/PID/stat
_ARG_START, _ARG_END = 45, 46
_EXITED, _DUMPED = os.CLD_EXITED, os.CLD_DUMPED


def fork_supervisor(journal: str) -> None:
    """Fork. The child returns and becomes the supervisor; the parent records exits and never returns."""
    process_tree.become_subreaper()  # before the fork: the child may start a job at once
    own = _set_title(TITLE)  # before the fork: at no moment two processes look like this supervisor
    try:
        supervisor = os.fork()
    except OSError:  # too many processes: it works without a recorder
        supervisor = 0
    if supervisor == 0:
        if own:
            _set_title(*own)
        if os.getpid() != os.getsid(0):
            os.setsid()  # so that a signal to its process group does not reach the recorder
        return
    try:
        os.closerange(
            3, 1 << 16
        )  # such as the descriptor on which the supervisor reports its start
        _pid, status = os.waitpid(supervisor, 0)
        if status:  # otherwise it has left no job
            record_exits(ExitWriter(journal), process_tree.boot_ticks())
    finally:
        os._exit(0)


def record_exits(writer: ExitWriter, until_ticks: int) -> None:
    """Reap all children. Write how those ended that lead a session and began before a time."""
    boot = process_tree.boot_id()
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            return
        assert ended is not None
        found = _describe(ended, boot)
        if found is not None and found.ticks <= until_ticks:
            # Until it is written, the status can be read from the process table.
            while not writer.write(found):
                time.sleep(_RETRY_S)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(ended.si_pid, 0)


def _describe(ended: os.waitid_result, boot: str) -> Exit | None:
    """Return how a child has ended; None if it does not lead a session, as first processes of jobs do."""
    fields = process_tree.stat_fields(ended.si_pid)
    if not fields or int(fields[_SESSION]) != ended.si_pid:
        return None
    if ended.si_code == _EXITED:
        status = ended.si_status << 8
    else:
        status = ended.si_status | (0x80 if ended.si_code == _DUMPED else 0)
    ticks = sum(int(fields[number]) for number in (_UTIME, _STIME, _CUTIME, _CSTIME))
    cpu_us = ticks * 1_000_000 // process_tree.TICKS_PER_S
    return Exit(boot, ended.si_pid, int(fields[_TICKS]), status, time.time_ns() // 1000, cpu_us)


def _set_title(title: bytes, name: bytes | None = None) -> tuple[bytes, bytes] | None:
    """Replace the command line and the name of this process; return the old ones, or None if it cannot."""
    try:
        with open(_COMM, "r+b", buffering=0) as file:
            old_name = file.read().strip()
            fields = process_tree.stat_fields(os.getpid())
            start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
            if not 0 < start < end:
                return None
            old = ctypes.string_at(start, end - start)
            ctypes.memmove(start, title[: len(old)].ljust(len(old), b"\0"), len(old))
            file.write(title if name is None else name)
    except (OSError, IndexError):
        return None
    return old, old_name
