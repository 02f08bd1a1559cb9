"""Processes that are nobody's child here: watched, asked and signalled without mistaking another for them."""

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
_EXIT_CODE_FIELD = 49  # of what follows the name in /proc/PID/stat


def has_ended(fd: int) -> bool:
    """Whether the process of a descriptor is over."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def exit_status(fd: int, pid: int, ticks: int) -> int | None:
    """The wait status of a process that is over, if anybody can still tell."""
    status = _status_when_reaped(fd)
    if status is None:
        status = _status_of_zombie(pid, ticks)
    if status is None:  # it may have been reaped between these two questions
        status = _status_when_reaped(fd)
    return status


def _status_when_reaped(fd: int) -> int | None:
    if fd < 0:
        return None
    buffer = bytearray(_INFO.size)
    _INFO.pack_into(buffer, 0, _INFO_EXIT, *[0] * 13)
    try:
        fcntl.ioctl(fd, _GET_INFO, buffer)
    except OSError:  # a kernel before 6.15 knows nothing of it
        return None
    mask, *_ids, status = _INFO.unpack(buffer)
    return int(status) if mask & _INFO_EXIT else None


def _status_of_zombie(pid: int, ticks: int) -> int | None:
    # The kernel says 0 to those who may not know; this user's own may be known.
    if not process_tree.is_own(pid):
        return None
    fields = process_tree.stat_fields(pid)
    if len(fields) <= _EXIT_CODE_FIELD or fields[0] != b"Z" or int(fields[19]) != ticks:
        return None
    return int(fields[_EXIT_CODE_FIELD])


def send(processes: Iterable[process_tree.Process], signum: int) -> None:
    """Signal each of these processes, and never another that has come by its number since."""
    for process in processes:
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(process.pid)
            try:
                seen = process_tree.look(process.pid)
                if seen is not None and seen.ticks == process.ticks:
                    signal.pidfd_send_signal(fd, signum)
            finally:
                os.close(fd)
