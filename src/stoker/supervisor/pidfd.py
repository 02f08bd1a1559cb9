"""Access to processes that are not children of this process, safe against reuse of their pids."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
from collections.abc import Iterable

from stoker.supervisor import process_tree

# struct pidfd_info of linux/pidfd.h in its first version: mask, cgroup, eleven ids, exit code.
_INFO = struct.Struct("=QQ11Ii")
_INFO_EXIT = 1 << 3
_GET_INFO = (3 << 30) | (_INFO.size << 16) | (0xFF << 8) | 11
_EXIT_CODE_FIELD = 49  # in /proc/PID/stat after the name


def has_ended(fd: int) -> bool:
    """Whether the process of a pidfd has ended."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def exit_status(fd: int, pid: int, ticks: int) -> int | None:
    """Return the wait status of a process that has ended; None if the kernel no longer knows it."""
    status = _status_when_reaped(fd)
    if status is None:
        status = _status_of_zombie(pid, ticks)
    if status is None:  # it may have been reaped between these two calls
        status = _status_when_reaped(fd)
    return status


def _status_when_reaped(fd: int) -> int | None:
    if fd < 0:
        return None
    buffer = bytearray(_INFO.size)
    _INFO.pack_into(buffer, 0, _INFO_EXIT, *[0] * 13)
    try:
        fcntl.ioctl(fd, _GET_INFO, buffer)
    except OSError:  # the kernel is older than 6.15
        return None
    mask, *_ids, status = _INFO.unpack(buffer)
    return int(status) if mask & _INFO_EXIT else None


def _status_of_zombie(pid: int, ticks: int) -> int | None:
    # The kernel reports 0 for the processes of other users.
    if not process_tree.is_own(pid):
        return None
    fields = process_tree.stat_fields(pid)
    if len(fields) <= _EXIT_CODE_FIELD or fields[0] != b"Z" or int(fields[19]) != ticks:
        return None
    return int(fields[_EXIT_CODE_FIELD])


def send(processes: Iterable[process_tree.Process], signum: int) -> None:
    """Signal each of these processes, but no other process that has got its pid since."""
    for process in processes:
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(process.pid)
            try:
                seen = process_tree.find_process(process.pid)
                if seen is not None and seen.ticks == process.ticks:
                    signal.pidfd_send_signal(fd, signum)
            finally:
                os.close(fd)
