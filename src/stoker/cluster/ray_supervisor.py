"""`python -m stoker.cluster.ray_supervisor`: keeps this box's part of the Ray cluster alive.

One per home, in its own session. It runs `ray start --block` as its child and restarts it when it ends:
after a crash of Ray, a cut cable, or a restart of the head, which it notices by itself (`head_session`).
It never gives up; while the head cannot be reached, it tries every second. On the head it also exchanges
join tokens for Ray's token. SIGTERM ends it and everything it started. If it dies, the kernel ends Ray too,
so that Ray never runs without a supervisor.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import itertools
import math
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import msgspec

from stoker import __version__, pid_lock
from stoker.cluster.admission import AdmissionServer
from stoker.cluster.head_session import ask_session, new_session
from stoker.cluster.ray_command import ray_environment, ray_words
from stoker.cluster.ray_folder import prepare_ray_folder
from stoker.cluster.ray_survey import ray_version, reach
from stoker.cluster.settings import (
    folder_of,
    load_node,
    load_settings,
    load_token,
    pilot_lock_path,
)
from stoker.errors import StokerError
from stoker.home import find_home

_STARTED = b"Ray runtime started"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_LOOK_S = 1.0
_LOOK_MS = 1000
# A raylet sometimes hangs at its start. Ray itself gives up after 30 s, when the lease of the node is over.
_START_LIMITS_S = (12.0, 24.0)
_SETTLED_S = 60.0  # after Ray has run for this long, pauses between restarts are short again
_PATIENCE_S = 3.0
_TAIL_LINES = 12
_LONGEST = 300
# Ray's prefix of its own lines, and lines that it repeats from the logs of its components.
_STAMP = re.compile(r"^\d{4}-\d\d-\d\d \S+\s+[A-Z]+ \S+ -- ")
_OF_A_PART = re.compile(r"\[state-dump\]|\((?:raylet|gcs_server)\)|^-----")
# A fatal error of one of Ray's libraries; a stack trace follows.
_FATAL = re.compile(r"^\[.*\bC \d+ \d+\] \S+: (.+)")
_PR_SET_PDEATHSIG = 1


class RayState(msgspec.Struct, frozen=True, kw_only=True):
    """State of Ray on this box, as the Ray supervisor reports it."""

    pid: int
    ray_pid: int | None = None
    state: str = "starting"  # starting, up, or waiting for the next try
    since: float = 0.0
    restarts: int = 0
    reason: str | None = None
    stoker: str = ""  # version of the Ray supervisor
    ray: str = ""  # version of Ray that was installed when it was started


class _HeadRestartedError(Exception):
    """Ray on the head has begun anew: this box's Ray cannot reach it any more."""


class _StartHangsError(Exception):
    """Ray is not up within the time that its start may take."""


class Stopped(Exception):  # noqa: N818 - it is no error
    """The Ray supervisor was told to end."""


class RaySupervisor:
    """Runs Ray for a home and restarts it, until a stop request."""

    def __init__(self, home: str, ready_fd: int | None) -> None:
        settings = load_settings(home)
        if settings is None:
            raise StokerError("this box belongs to no cluster: stoker cluster up or join")
        self._home = home
        self._folder = ""
        self._folder_lock: int | None = None
        self._node = load_node(home)
        self._settings = settings
        self._environment = ray_environment(home, os.environ)
        self._ready_fd = ready_fd
        self._state = RayState(pid=os.getpid(), since=time.time(), stoker=__version__)
        self._session = ""  # of Ray on this box, if it is the head
        self._head_session: str | None = None  # in which Ray on this node was started
        self._ask_at = 0.0
        self._wake, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        self._prepare_folder()

    def _prepare_folder(self) -> None:
        """Create or check Ray's folder, and lock it: systemd-tmpfiles does not clean a locked folder."""
        self._folder = prepare_ray_folder(self._home)
        if self._folder_lock is not None:
            os.close(self._folder_lock)
        outer = os.path.dirname(self._folder)
        self._folder_lock = os.open(outer, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._folder_lock, fcntl.LOCK_SH)

    def take_lock(self) -> None:
        """Become the only Ray supervisor of the home; raise StokerError if there is one already."""
        if pid_lock.take(lock_path(self._home)) is None:
            raise StokerError("a Ray supervisor is already running")

    def ask_to_stop(self) -> None:
        """Ask Ray and the Ray supervisor to end; safe in a signal handler."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_writer, b"x")

    def run(self) -> None:
        """Supervise Ray until told to stop; on the head, admit boxes meanwhile."""
        pause_s = _FIRST_PAUSE_S
        known = self._settings
        admission = AdmissionServer(
            self._home, known.own_address, known.join_port, log, lambda: self._session
        )
        if known.is_head:
            admission.start()
        try:
            while True:
                began = time.monotonic()
                try:
                    reason = self._run_ray()
                except _HeadRestartedError:
                    reason, pause_s = "Ray on the head has begun anew", 0.0
                if time.monotonic() - began > _SETTLED_S:
                    pause_s = 0.0
                log(f"Ray has ended ({reason}); again in {pause_s:.0f}s")
                self._tell(f"error: {reason}\n")
                self._note(state="waiting", ray_pid=None, reason=reason)
                self._wait(pause_s)
                pause_s = min(max(2 * pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
                if self._wait_for_head():
                    pause_s = _FIRST_PAUSE_S
                self._note(restarts=self._state.restarts + 1)
        except Stopped:
            log("told to stop")
        finally:
            admission.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(state_path(self._home))

    def _run_ray(self) -> str:
        """Start Ray, again if it hangs, and wait for its end. Returns the reason of its end."""
        for limit_s in _START_LIMITS_S:
            try:
                return self._run_ray_once(limit_s)
            except _StartHangsError:
                log(f"Ray is not up after {limit_s:.0f}s: it is started again")
        return self._run_ray_once(math.inf)

    def _run_ray_once(self, start_limit_s: float) -> str:
        try:
            self._prepare_folder()
        except (StokerError, OSError) as error:
            return f"cannot make a folder for Ray's files: {error}"
        self._forget_old_sessions()
        if self._settings.is_head:
            self._session = new_session()  # nodes may start theirs: it waits for this one
        else:
            self._head_session = self._ask_head()
        words = ray_words(self._node, self._settings, self._folder)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid()), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            cwd="/",
        )
        assert process.stdout is not None
        log(f"Ray starts, process {process.pid}")
        self._note(state="starting", ray_pid=process.pid, reason=None, ray=ray_version())
        patience_s = _PATIENCE_S
        try:
            said = self._follow(process, process.stdout.fileno(), time.monotonic() + start_limit_s)
        except (_HeadRestartedError, _StartHangsError):
            patience_s = 0.0  # it would try to reach the head until its end
            raise
        finally:
            self._session = ""
            _end(process, patience_s)
        reason, tail = find_reason(said.decode(errors="replace"), process.returncode)
        if self._state.state == "starting":
            log("\n  ".join(["Ray did not start; it said last:", *tail]))
        return reason

    def _follow(self, process: subprocess.Popen[bytes], output: int, up_until: float) -> bytes:
        """Read Ray's output until its end. Returns the last part of it."""
        poll = select.poll()
        poll.register(output, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        said = b""
        while True:
            is_starting = self._state.state == "starting"
            must_look = is_starting or not self._settings.is_head
            ready = {fd for fd, _ in poll.poll(_LOOK_MS if must_look else None)}
            if self._wake in ready or self._has_lost_pilot():
                raise Stopped
            if self._has_head_restarted():
                raise _HeadRestartedError
            if is_starting and time.monotonic() > up_until:
                raise _StartHangsError
            if output not in ready:
                continue
            data = os.read(output, 65536)
            if not data:
                return said
            said = (said + data)[-65536:]
            if self._state.state == "starting" and _STARTED in said:
                log(f"Ray is up, process {process.pid}")
                self._note(state="up")
                self._tell("ready\n")

    def _has_lost_pilot(self) -> bool:
        """Whether the pilot has ended that this Ray supervisor belongs to."""
        if not self._settings.is_pilot:
            return False
        return pid_lock.holder_pid(pilot_lock_path(self._home)) is None

    def _ask_head(self) -> str | None:
        """Return the session of Ray on the head; None if it cannot be known."""
        self._ask_at = time.monotonic() + _LOOK_S
        token = load_token(self._home)
        if token is None:
            return None
        return ask_session(self._settings.address, self._settings.join_port, token)

    def _has_head_restarted(self) -> bool:
        """Whether Ray on the head has ended or begun anew since it was started here."""
        if self._settings.is_head or time.monotonic() < self._ask_at:
            return False
        session = self._ask_head()
        if session is None:
            return False
        if self._head_session:
            return session != self._head_session
        self._head_session = session  # it was not known when Ray was started
        return False

    def _wait(self, pause_s: float) -> None:
        if select.select([self._wake], [], [], pause_s)[0] or self._has_lost_pilot():
            raise Stopped

    def _wait_for_head(self) -> bool:
        """Wait until the head can be reached. Returns whether there was a need to wait."""
        had_to_wait = False
        while not self._settings.is_head and not self._can_reach_head():
            had_to_wait = True
            self._wait(_LOOK_S)
        return had_to_wait

    def _can_reach_head(self) -> bool:
        """Whether Ray is up on the head."""
        session = self._ask_head()
        if session is not None:
            return bool(session)
        try:
            reach(self._settings.address, self._settings.port)
        except StokerError:
            return False
        return True

    def _forget_old_sessions(self) -> None:
        """Remove the logs of all sessions but the last; each start of a head creates one."""
        with os.scandir(self._folder) as entries:
            sessions = [
                entry.path
                for entry in entries
                if entry.name.startswith("session_") and entry.is_dir(follow_symlinks=False)
            ]
        for path in sorted(sessions)[:-1]:
            shutil.rmtree(path, ignore_errors=True)

    def _note(self, **changes: object) -> None:
        since = time.time() if "state" in changes else self._state.since
        self._state = msgspec.structs.replace(self._state, since=since, **changes)
        path = state_path(self._home)
        with contextlib.suppress(OSError):  # a full disk must not stop Ray
            fresh = f"{path}.{os.getpid()}"
            with open(fresh, "wb") as file:
                file.write(msgspec.json.encode(self._state))
            os.replace(fresh, path)

    def _tell(self, text: str) -> None:
        """Answer the process that started us, once, if it still listens."""
        if self._ready_fd is not None:
            with contextlib.suppress(OSError):
                os.write(self._ready_fd, text.encode(errors="replace"))
                os.close(self._ready_fd)
            self._ready_fd = None


# A small process asks for the signal at its parent's death: forking a whole Ray supervisor costs more.
_BOUND = f"""\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, signal.SIGTERM, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the Ray supervisor is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


def _end(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """Terminate Ray and everything it started; kill what does not end in time."""
    family = descendants(process.pid)
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    # Ray's processes watch their parent and end with it; those that do not are killed after a while.
    deadline = time.monotonic() + patience_s
    for fd in family:
        if not pid_lock.has_ended(fd, deadline - time.monotonic()):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        os.close(fd)
    if process.stdout is not None:
        process.stdout.close()


def descendants(pid: int) -> list[int]:
    """Return pidfds of all descendants of a process.

    Jobs and their supervisor are not among them: they have left the tree.
    """
    found = []
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = [int(word) for word in file.read().split()]
    except OSError:
        return []
    for child in children:
        with contextlib.suppress(OSError):
            found.append(os.pidfd_open(child))
        found += descendants(child)
    return found


def find_reason(said: str, status: int) -> tuple[str, list[str]]:
    """Return why Ray ended, in one line, and its last lines; lines of its components' logs are left out."""
    plain = (_STAMP.sub("", line).strip() for line in said.splitlines())
    lines = [line[:_LONGEST] for line in plain if line and not _OF_A_PART.search(line)]
    for before, line in itertools.pairwise(lines):
        if "exited unexpectedly" in before:
            return line, lines[-_TAIL_LINES:]
    for number, line in enumerate(lines):
        if (fatal := _FATAL.match(line)) is not None:
            return fatal[1], lines[max(0, number - _TAIL_LINES) : number + 1]
    faults = [line for line in lines if "Error" in line]
    return (faults or lines or [f"exit {status}"])[-1], lines[-_TAIL_LINES:]


def lock_path(home: str) -> str:
    """Return the path of the file that the Ray supervisor of a home locks."""
    return os.path.join(folder_of(home), "ray_supervisor.lock")


def state_path(home: str) -> str:
    """Return the path of the file with the state of Ray."""
    return os.path.join(folder_of(home), "ray_supervisor.json")


def log(text: str) -> None:
    """Write a line to the Ray supervisor's log. Callers never pass a token."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{stamp} {text}\n")
        sys.stderr.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the Ray supervisor of a home until told to stop."""
    parser = argparse.ArgumentParser(
        prog="python -m stoker.cluster.ray_supervisor", description=__doc__
    )
    parser.add_argument("--ready-fd", type=int, metavar="N", help="descriptor on which to report")
    args = parser.parse_args(argv)
    for signum in (signal.SIGHUP, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_IGN)
    try:
        home = find_home()
        ray_supervisor = RaySupervisor(home, args.ready_fd)
        ray_supervisor.take_lock()
    except StokerError as error:
        log(f"error: {error}")
        if args.ready_fd is not None:
            os.write(args.ready_fd, f"error: {error}\n".encode())
        return 1
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: ray_supervisor.ask_to_stop())
    ray_supervisor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
