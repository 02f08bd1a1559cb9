"""`stoker cluster join --foreground`: a node for as long as this command runs, as in a batch script."""

from __future__ import annotations

import os
import shutil
import stat
import time

from stoker.cli.arguments import Args
from stoker.cli.cluster_join import join
from stoker.cli.cluster_leave import announce_leave, heard_at
from stoker.cli.messages import note
from stoker.cluster import ray_supervisor_control, ray_survey, settings
from stoker.cluster.pilot import (
    LEAVE_S,
    AskedToEndError,
    announce_ending,
    make_pilot_home,
    run_bound,
)
from stoker.cluster.ray_command import TOKEN_VARIABLE
from stoker.cluster.slurm.given_gpus import JOB_ID, given_gpus
from stoker.errors import StokerError, UsageError
from stoker.home import find_home

_LOOK_S = 1.0
_WITHOUT_HEAD_S = 600.0
_LONGEST_TOKEN = 1024


def join_in_foreground(args: Args) -> int:
    """Join with a new home on a local disk; return when told to end, or when the cluster is gone."""
    ray_survey.require_ray()
    args.gpus = _choose_gpus(args)
    if args.token_file is not None:
        os.environ[TOKEN_VARIABLE] = read_token_file(args.token_file)
    os.environ["STOKER_HOME"] = home = _make_home()
    return run_bound(home, lambda: _be_a_node(home, args))


def read_token_file(path: str) -> str:
    """Return the token in a file that no other user can read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with open(fd, encoding="ascii") as file:
            found = os.fstat(fd)
            if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
                raise UsageError(f"--token-file {path}: others can read it: chmod 600 {path}")
            return file.read(_LONGEST_TOKEN).strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"--token-file {path}: {reason}") from None


def _make_home() -> str:
    """Create the node's home; a shared file system would have one set of locks for all nodes."""
    home = make_pilot_home()
    os.environ["STOKER_HOME"] = home
    try:
        return find_home()
    except StokerError:
        shutil.rmtree(home)
        raise StokerError(
            f"the node's home cannot be in {os.path.dirname(home)}: set TMPDIR to a folder on a local disk"
        ) from None


def _choose_gpus(args: Args) -> str | None:
    """Return the GPUs of this node: those that the batch system gave, and no other."""
    from stoker.gpus.drivers import open_driver

    nvml = open_driver()
    given = given_gpus(os.environ, None if nvml is None else len(nvml.gpus()))
    named: str | None = args.gpus
    if given is None:
        return named
    if named is not None:
        raise UsageError(
            f"--gpus {named}: this job was given the GPUs {given or 'none'}: leave --gpus out"
        )
    return given


def _be_a_node(home: str, args: Args) -> int:
    """Be a member of the cluster until asked to end. Returns the exit code."""
    began = time.time()
    try:
        join(home, args)
        os.environ.pop(TOKEN_VARIABLE, None)
        note(f"this node ends with this command{_describe_job()}")
        while ray_supervisor_control.ray_supervisor_pid(home) is not None:
            if time.time() > max(began, heard_at(home)) + _WITHOUT_HEAD_S:
                raise StokerError(
                    f"the first box, {args.target}, was not heard for {_WITHOUT_HEAD_S:.0f}s: the node ends"
                )
            time.sleep(_LOOK_S)
        raise StokerError("Ray has ended on this node, which ends too")
    except AskedToEndError:
        if settings.load_settings(home) is not None:
            announce_ending(home)
            announce_leave(home, LEAVE_S / 2)
            ray_supervisor_control.stop_ray_supervisor(home)
        raise


def _describe_job() -> str:
    job = os.environ.get(JOB_ID)
    return "" if job is None else f", in Slurm's job {job}"
