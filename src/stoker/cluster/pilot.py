"""Pilot: a node that lives in the foreground of a batch script, and leaves nothing behind on its machine.

`stoker cluster join --foreground` is two processes. The **guard** is the process that was started. It forks
the **member**, which joins the cluster and waits. Both are subreapers, so everything that Stoker, Ray and the
jobs start stays below them, whatever leads a session of its own or loses its parent.

    the parent of the guard ends    the guard ends all (the batch script was killed)
    the member ends                 the guard ends all
    the guard is killed             the member ends all
    both are killed at once         the Ray supervisor ends, and the jobs end with the node's lease

Before anything is ended, the ending file says so: the agent then reports the ends of jobs as those of the
node (see `bridge/protocol_proxy.py`), so that no job counts as failed because its allocation was over.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from stoker import pid_lock
from stoker.cluster.ray_folder import remove_ray_folder
from stoker.cluster.ray_supervisor import descendants
from stoker.cluster.settings import ending_path, make_folder, pilot_lock_path
from stoker.errors import StokerError

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LEAVE_S = 20.0
"""The longest time in which a pilot that is told to end hands its jobs back to the head."""
_KILL_S = 10.0
_DEAD_S = 60.0
_PREFIX = "stoker-node-"
_STEP_S = 0.02


class AskedToEndError(BaseException):
    """The pilot was told to end, by a signal. No handler of other errors may stop it."""


def make_pilot_home() -> str:
    """Create a new folder for the home of a pilot, on the disk of this machine. Returns its path."""
    remove_dead_homes(tempfile.gettempdir())
    return tempfile.mkdtemp(prefix=_PREFIX)


def remove_dead_homes(folder: str) -> None:
    """Remove the homes of this user's pilots that were killed with all of their processes at once."""
    pattern = os.path.join(glob.escape(folder), f"{_PREFIX}*", "cluster", "pilot.lock")
    for path in glob.iglob(pattern):
        with contextlib.suppress(OSError):
            found = os.lstat(path)
            is_old = time.time() > found.st_mtime + _DEAD_S  # else a pilot may be about to lock it
            if found.st_uid == os.getuid() and is_old and pid_lock.holder_pid(path) is None:
                _remove_home(os.path.dirname(os.path.dirname(path)))


def _remove_home(home: str) -> None:
    """Remove a home, and Ray's files, which may be in a folder with a shorter path."""
    if os.path.isdir(home):
        with contextlib.suppress(OSError, StokerError):
            remove_ray_folder(home)
    shutil.rmtree(home, ignore_errors=True)


def announce_ending(home: str) -> None:
    """Create the ending file. A full disk must not keep the pilot from ending."""
    with contextlib.suppress(OSError, StokerError):
        make_folder(home)
        os.close(os.open(ending_path(home), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def run_bound(home: str, work: Callable[[], int]) -> int:
    """Run `work` in a member, bound to this process, and remove the home when all of it has ended.

    `work` gets AskedToEndError when it has to end. Returns its exit code.
    """
    _become_subreaper()
    parent = os.pidfd_open(os.getppid())
    guard = os.getpid()
    member = os.fork()
    if member == 0:
        _run_member(home, guard, work)
    with _guarded(home, member) as is_asked:
        status = _wait_for(member, parent, is_asked)
        announce_ending(home)
        end_descendants()
    _remove_home(home)
    return status


def _run_member(home: str, guard: int, work: Callable[[], int]) -> NoReturn:
    """Do the work of the member, and end this process."""
    _become_subreaper()
    for signum in _SIGNALS:
        signal.signal(signum, _ask_to_end)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    code = 1
    try:
        make_folder(home)
        if pid_lock.take(pilot_lock_path(home)) is not None and os.getppid() == guard:
            code = work()
    except AskedToEndError:
        code = 0
    except StokerError as error:
        os.write(2, f"stoker: {error}\n".encode(errors="backslashreplace"))
        code = error.exit_code
    finally:
        announce_ending(home)
        if os.getppid() != guard:  # no other process ends what is left
            end_descendants()
            _remove_home(home)
        os._exit(code)


def _ask_to_end(_signum: int, _frame: FrameType | None) -> None:
    for signum in _SIGNALS:  # once is enough: what follows must not be interrupted
        signal.signal(signum, signal.SIG_IGN)
    raise AskedToEndError


@contextlib.contextmanager
def _guarded(home: str, member: int) -> Iterator[Callable[[], bool]]:
    """Pass signals on to the member; the block gets a function that says whether there was one."""
    asked = False

    def pass_on(_signum: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        announce_ending(home)
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGTERM)

    for signum in _SIGNALS:
        signal.signal(signum, pass_on)
    yield lambda: asked


def _wait_for(member: int, parent: int, is_asked: Callable[[], bool]) -> int:
    """Wait until the member or the parent of this process has ended. Returns the exit code of the member."""
    poll = select.poll()
    poll.register(parent, select.POLLIN)
    deadline: float | None = None
    while True:
        ended, status = os.waitpid(member, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) & 0xFF
        if is_asked() and deadline is None:
            deadline = time.monotonic() + LEAVE_S
        if poll.poll(1000 * _STEP_S * 5) or (deadline is not None and time.monotonic() > deadline):
            os.kill(member, signal.SIGKILL)
            os.waitpid(member, 0)
            return 1


def end_descendants() -> None:
    """Kill every process below this one, and those that come to it, until there is none."""
    deadline = time.monotonic() + _KILL_S
    while time.monotonic() < deadline:
        for fd in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            os.close(fd)
        if not _reap():
            return
        time.sleep(_STEP_S)


def _reap() -> bool:
    """Reap the children that have ended. Returns whether there are others."""
    while True:
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def _become_subreaper() -> None:
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise StokerError("this kernel lets no process adopt the orphans of its children")
