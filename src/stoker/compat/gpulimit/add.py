"""`gpulimit add`: adds a command as a job of Stoker."""

from __future__ import annotations

import os
import stat
import tempfile
from typing import TYPE_CHECKING

from stoker.client.autostart import ensure_daemon
from stoker.client.submit import submit
from stoker.compat.gpulimit.tasks import (
    DAEMON_OPTIONS,
    DEFAULT_PRIORITY,
    convert_priority,
    read_parameters,
)
from stoker.errors import UsageError
from stoker.submit_context import build_submission, find_folder, make_absolute, to_wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoker.client.client import Client

_OPTIONS = ("priority", "logpath")
_FOLDER = "gpulimit"


def add(client: Client, words: Sequence[str]) -> int:
    """Add a task with this folder and environment; a single word is a line for the shell."""
    options, command = _split_options(words)
    if not command:
        raise UsageError("no command was given: gpulimit add python3 main.py")
    priority = options.get("priority", str(DEFAULT_PRIORITY))
    if not priority.removeprefix("-").isdecimal():
        raise UsageError(
            f"--priority={priority} is no whole number: 1 runs before {DEFAULT_PRIORITY}"
        )
    ensure_daemon(client.home, DAEMON_OPTIONS).close()
    line = [to_wire(os.fsencode(word)) for word in command]
    log = _log_template(options.get("logpath"))
    message = build_submission(
        [{"command": line if len(line) > 1 else line[0]}],
        find_folder(None),
        {
            "priority": convert_priority(int(priority)),
            "retries": int(read_parameters(client)["MAX_ERR_TIMES"]) - 1,
            "share": "free",  # on a GPU with other tasks while SAFETY_KEEP_GPU_MEMORY of it is free
            "log": None if log is None else to_wire(log),
        },
    )
    added = submit(client.home, message)
    queued = sum(client.status().counts.values())
    print(f"add task(id:{added['first'] - 1}) to queue(len: {queued})")
    return 0


def _split_options(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split options (`--name=value` or `--name value`) from the command behind them."""
    options: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("--"):
        name, has_value, value = rest.pop(0)[2:].partition("=")
        if name not in _OPTIONS:
            raise UsageError(f"add has no --{name}: only --priority=N and --logpath=PATH")
        if not has_value and not rest:
            raise UsageError(f"--{name} needs a value: --{name}=…")
        options[name] = value if has_value else rest.pop(0)
    return options, rest


def _log_template(path: str | None) -> bytes | None:
    """Return the path of a task's output, in a folder `<id>.log`; None leaves it to Stoker."""
    if path is None:
        path = os.path.join(tempfile.gettempdir(), _FOLDER)
        if not _make_own_folder(path):
            return None
    if path.endswith("/") or os.path.isdir(path):
        path = os.path.join(path, "{index}.log")
    return make_absolute(path)


def _make_own_folder(folder: str) -> bool:
    """Make a folder whose name all users of the machine share; whether it belongs to this user."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return False
    found = os.lstat(folder)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
