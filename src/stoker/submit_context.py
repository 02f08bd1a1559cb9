"""Builder of submissions: jobs, their options, and the folder, environment and user they are added from.

Every `stoker add` imports this module, so it imports as little as possible.
"""

from __future__ import annotations

import os

from stoker.errors import StokerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

Wire = str | dict[str, str]

# Variables of a job itself: an `add` inside of a job must not pass them on.
OURS = (
    b"STOKER_COOKIE",
    b"STOKER_JOB_ID",
    b"STOKER_ATTEMPT",
    b"STOKER_LINGER",
    b"STOKER_ON_CUT",
    b"STOKER_CHECKPOINTS",
    b"STOKER_PART",
    b"STOKER_CHECKPOINT_DIR",
    b"STOKER_RUN_DIR",
    b"STOKER_WANDB_GROUPS",
    b"STOKER_GPU_UUIDS",
)
# Of a sweep's run, if they point into its folder.
_OF_RUN = (b"WANDB_DIR", b"MLFLOW_TRACKING_URI")


def build_submission(
    jobs: list[Any],
    folder: bytes,
    options: dict[str, Any],
    environment: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a wire.Submission as a plain dictionary, with a new request id.

    `options` are other fields of a wire.Submission; the daemon has a default for each that is None.
    `environment` is this process's own unless it is given.
    """
    message = {
        "request_id": new_request_id(),
        "jobs": jobs,
        "cwd": to_wire(folder),
        "user": find_user(),
        **options,
        **(take_environment() if environment is None else environment),
    }
    return {name: value for name, value in message.items() if value is not None}


def new_request_id() -> str:
    """Return an id that no other submission has."""
    return os.urandom(16).hex()


def to_wire(data: bytes) -> Wire:
    """Encode bytes for the wire: as text, or in base64 if they are not valid UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": _base64(data)}


def make_absolute(path: str) -> bytes:
    """Return the absolute path of a path."""
    try:
        return os.path.abspath(os.fsencode(path))
    except FileNotFoundError:
        raise StokerError("the folder you are in is gone: cd to one that exists") from None


def find_folder(named: str | None) -> bytes:
    """Return the folder to run a job in: the named one, else the current one."""
    folder = make_absolute(named or ".")
    if not os.path.isdir(folder):
        shown = os.fsdecode(folder)
        if named is None:
            raise StokerError(f"the folder you are in is gone ({shown}): cd to one that exists")
        reason = "is no folder" if os.path.lexists(folder) else "does not exist"
        raise StokerError(f"-C {named}: {shown} {reason}")
    return folder


def take_environment() -> dict[str, Any]:
    """Return this process's environment as `env`, and `env_b64` for entries that are not UTF-8."""
    texts: dict[str, str] = {}
    others: list[bytes] = []
    run_dir = os.environb.get(b"STOKER_RUN_DIR")
    for name, value in os.environb.items():
        if name in OURS or (run_dir and name in _OF_RUN and run_dir in value):
            continue
        try:
            texts[name.decode("utf-8")] = value.decode("utf-8")
        except UnicodeDecodeError:
            others.append(name + b"=" + value + b"\0")
    return {"env": texts, **({"env_b64": _base64(b"".join(others))} if others else {})}


def warn_of_slurm(names: Iterable[str], gpus: int) -> str | None:
    """Return a warning if a job on several GPUs gets Slurm's variables; None without them."""
    if gpus < 2:
        return None
    count = sum(name.startswith("SLURM_") for name in names)
    if not count:
        return None
    return (
        f"{count} SLURM_* variables of this shell go along: Lightning takes them for a step of srun"
        " and starts no processes (in bash: unset ${!SLURM_@})"
    )


def find_user() -> str | None:
    """Return the name of the user; None if the user has no name."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user may have no name
        return None


def _base64(data: bytes) -> str:
    import binascii

    return binascii.b2a_base64(data, newline=False).decode("ascii")
