"""Start of an attempt's process: its environment, its log, and a shell where the kernel needs one."""

from __future__ import annotations

import os
from collections.abc import Container
from typing import Any

from stoker.checkpoints import checkpoint_path
from stoker.supervisor.leases import explain_descriptor_limit
from stoker.supervisor.process_tree import COOKIE_BYTES
from stoker.supervisor.rendezvous import RendezvousPorts
from stoker.supervisor.signals import RESET_SIGNALS
from stoker.supervisor.slot_queues import Attempt, count_gpus


def build_environment(
    attempt: Attempt, cookie_prefix: bytes, ports: RendezvousPorts, running: Container[str]
) -> dict[bytes, bytes]:
    """Return the whole environment of an attempt. `running` are the attempts that run."""
    key = attempt.key.encode()
    env = attempt.context.environment(attempt.slot).copy()
    gpus = count_gpus(attempt.slot.env)
    ports.set_variables(env, attempt.key, running, gpus)
    if attempt.env is not None:
        env.update(attempt.env)
    env[b"STOKER_JOB_ID"], _, env[b"STOKER_ATTEMPT"] = key.partition(b".")
    env[COOKIE_BYTES] = cookie_prefix + key
    if (checkpoints := env.get(b"STOKER_CHECKPOINTS")) is not None:
        path = checkpoint_path(int(env[b"STOKER_JOB_ID"]))
        env[b"STOKER_CHECKPOINT_DIR"] = checkpoints + b"/" + path.encode("ascii")
    return env


def spawn_process(
    argv: list[str],
    env: dict[bytes, bytes],
    actions: list[tuple[int, int, int]],
    shell: str,
    isolation: dict[str, Any],
) -> int:
    """Start a process and return its pid; by the shell if the kernel cannot execute it.

    `isolation` has the arguments of posix_spawn that give the job a session or process group of its own.
    """
    try:
        return os.posix_spawn(
            argv[0],
            argv,
            env,
            file_actions=actions,
            setsigmask=[],
            setsigdef=RESET_SIGNALS,
            **isolation,
        )
    except OSError:
        if argv[0] == shell:
            raise
        # A script without an interpreter line, or an error: the shell runs it or explains.
        return spawn_process([shell, "-c", '"$0" "$@"', *argv], env, actions, shell, isolation)


def open_log(path: str) -> int:
    """Open a log for appending. Fails for a pipe without a reader, which would block all other jobs."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, 0o666)
    os.set_blocking(fd, True)
    return fd


def explain_failure(error: OSError) -> str:
    """Return why a start has failed, in printable characters."""
    text = explain_descriptor_limit(error) or error.strerror or str(error)
    if isinstance(error.filename, str):
        name = os.fsencode(error.filename).decode("utf-8", "backslashreplace")
        return f"{text}: {name}"
    return text
