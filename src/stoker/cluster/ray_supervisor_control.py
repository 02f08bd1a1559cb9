"""Start, query and stop the Ray supervisor of a home."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

import msgspec

from stoker import __version__, pid_lock
from stoker.cluster.ray_command import TOKEN_VARIABLE
from stoker.cluster.ray_supervisor import RayState as RayState
from stoker.cluster.ray_supervisor import lock_path, state_path
from stoker.cluster.ray_survey import ray_version
from stoker.cluster.settings import folder_of, load_settings
from stoker.detached import start, start_and_wait
from stoker.errors import StokerError
from stoker.interpreter import module_words

_PATIENCE_S = 90.0
_END_PATIENCE_S = 30.0
RAY_SUPERVISOR = "stoker.cluster.ray_supervisor"


def log_path(home: str) -> str:
    """Return the path of the Ray supervisor's log."""
    return os.path.join(folder_of(home), "ray_supervisor.log")


@contextlib.contextmanager
def turn(home: str) -> Iterator[None]:
    """Lock that makes changes of this box's membership exclusive."""
    os.makedirs(folder_of(home), mode=0o700, exist_ok=True)
    path = os.path.join(folder_of(home), "change.lock")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def ray_supervisor_pid(home: str) -> int | None:
    """Return the pid of the Ray supervisor of a home; None if there is none."""
    return pid_lock.holder_pid(lock_path(home)) or None


def read_state(home: str) -> RayState | None:
    """Return the state of Ray on this box, as last reported; None if no Ray supervisor is running."""
    pid = ray_supervisor_pid(home)
    if pid is None:
        return None
    try:
        with open(state_path(home), "rb") as file:
            state = msgspec.json.decode(file.read(), type=RayState)
    except (OSError, msgspec.DecodeError):
        return RayState(pid=pid)
    return state if state.pid == pid else RayState(pid=pid)


def is_outdated(home: str) -> bool:
    """Return whether another version of Stoker or Ray runs Ray on this box than is installed now."""
    state = read_state(home)
    return state is not None and (state.stoker, state.ray) != (__version__, ray_version())


def has_other_ray(home: str) -> bool:
    """Return whether the Ray that runs on this box has another version than the installed one."""
    state = read_state(home)
    return state is not None and state.ray not in ("", ray_version())


def restart_ray_supervisor(home: str) -> None:
    """Let the installed versions of Stoker and Ray take over. Jobs go on: they are no children of Ray."""
    stop_ray_supervisor(home)
    start_ray_supervisor(home)


def ensure_ray_supervisor(home: str) -> None:
    """Start the Ray supervisor if this box belongs to a cluster and none is running. Does not wait for Ray.

    The daemon calls this, for example after a restart of the box.
    """
    if load_settings(home) is not None and ray_supervisor_pid(home) is None:
        start(
            "the Ray supervisor", module_words(RAY_SUPERVISOR), log_path(home), _environment(home)
        )


def start_ray_supervisor(home: str) -> None:
    """Start the Ray supervisor and wait until Ray is up; raise StokerError with the reason if it is not.

    In that case the Ray supervisor keeps trying until it is stopped.
    """
    said = start_and_wait(
        "the Ray supervisor",
        module_words(RAY_SUPERVISOR),
        log_path(home),
        _environment(home),
        _PATIENCE_S,
    )
    if said != "ready":
        reason = (
            said.removeprefix("error: ") if said else "its Ray supervisor ended before it was up"
        )
        raise StokerError(f"Ray could not start: {reason} (more in {log_path(home)})")


def stop_ray_supervisor(home: str) -> bool:
    """Stop the Ray supervisor and all of Ray on this box. Returns whether there was one."""
    pid = ray_supervisor_pid(home)
    if pid is None:
        return False
    if not pid_lock.end_holder(lock_path(home), pid, _END_PATIENCE_S):
        raise StokerError(
            f"the Ray supervisor (process {pid}) has not ended within {_END_PATIENCE_S:.0f}s:"
            f" {log_path(home)} may say why"
        )
    return True


def _environment(home: str) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    return {**environment, "STOKER_HOME": home, "STOKER_PART": "ray_supervisor"}
