"""The batch script of an allocation: a pilot, and the options with which it is submitted."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import time
from collections.abc import Sequence

from stoker.cluster.join_tokens import find_join_token, issue_join_token, parse_join_token
from stoker.cluster.settings import ClusterSettings
from stoker.core.allocation import Rule
from stoker.errors import StokerError
from stoker.home import make_folder
from stoker.interpreter import module_command

NODE_PREFIX = "slurm-"
_LOG_BYTES = 4096
_GPU_OPTIONS = ("--gres", "--gpus", "-G")
# What these change is for the whole of an allocation to decide.
_REFUSED = ("--array", "-a", "--wrap", "--parsable", "--test-only", "--wait", "-W", "--requeue")


def node_name(job: int) -> str:
    """Return the name of the node of an allocation."""
    return f"{NODE_PREFIX}{job}"


def job_name(queue: str, rule: int) -> str:
    """Return the name of a rule's jobs in Slurm, by which lost ones are found again."""
    return f"{queue}-{rule}"


def check_options(options: Sequence[str]) -> None:
    """Raise StokerError for options of sbatch that an allocation cannot have."""
    for word in options:
        if word.partition("=")[0] in _REFUSED:
            raise StokerError(f"{word}: an allocation is one job of Slurm: leave it out")
        if "\n" in word or "\0" in word:
            raise StokerError("an option of sbatch is one line")


def make_options(rule: Rule, queue: str, folder: str) -> list[str]:
    """Return the options of sbatch. The user's own come first, so that they cannot replace these."""
    minutes = max(1, int(-(-rule.time_s // 60)))
    gpus = [] if _names_gpus(rule.options) else [f"--gres=gpu:{rule.gpus}"]
    return [
        *rule.options,
        *gpus,
        f"--job-name={job_name(queue, rule.id)}",
        f"--time={minutes}",
        "--nodes=1",
        "--ntasks=1",
        "--no-requeue",
        "--chdir=/",
        f"--output={folder}/%j.log",
    ]


def make_script(rule: Rule, settings: ClusterSettings, token_file: str) -> str:
    """Return a batch script that becomes a pilot."""
    words = module_command(
        "stoker", "cluster", "join", settings.target, "--foreground", "--token-file", token_file
    )
    if rule.setup is not None:
        words += ["--setup", rule.setup]
    name = f'{NODE_PREFIX}"$SLURM_JOB_ID"'
    return f"#!/bin/sh\numask 077\nexec {shlex.join(words)} --name {name}\n"


def shared_folder(queue: str) -> str:
    """Create the folder that compute nodes see too, with tokens and logs. The home may be on a local disk."""
    base = os.environ.get("XDG_STATE_HOME", "").strip() or os.path.expanduser("~/.local/state")
    folder = os.path.join(base, "stoker-slurm", queue)
    try:
        make_folder(folder)
        found = os.lstat(folder)
        if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
            raise StokerError(f"{folder} is not a folder of yours")
        os.chmod(folder, 0o700)
    except OSError as error:
        raise StokerError(f"cannot make {folder}: {error.strerror}") from None
    return folder


def write_token(home: str, rule: int, folder: str) -> str:
    """Write the join token of a rule's pilots to a file of this user alone. Returns its path."""
    path = os.path.join(folder, f"token-{rule}")
    with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
        known = parse_join_token(file.read().strip())
        if known is not None and find_join_token(home, known.id) is not None:
            return path
    token = issue_join_token(home, None, time.time())
    fresh = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="ascii") as file:
        file.write(token.text)
    os.replace(fresh, path)
    return path


def read_token(rule: int, folder: str) -> str | None:
    """Return the id of the join token of a rule's pilots; None if there is none."""
    try:
        with open(os.path.join(folder, f"token-{rule}"), encoding="ascii") as file:
            known = parse_join_token(file.read().strip())
    except (OSError, ValueError):
        return None
    return None if known is None else known.id


def last_words(job: int, folder: str) -> str | None:
    """Return the last line of an allocation's output; None if it has none."""
    try:
        with open(os.path.join(folder, f"{job}.log"), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    told = ["".join(c if c.isprintable() else " " for c in line).strip() for line in lines]
    return next((line[-300:] for line in reversed(told) if line), None)


def _names_gpus(options: Sequence[str]) -> bool:
    return any(word.startswith(_GPU_OPTIONS) for word in options)
