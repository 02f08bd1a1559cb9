"""Wraps a job's command in the container engine that runs it in an image.

The wrapper is a line for /bin/sh, and not a program of Stoker: a node of the cluster needs nothing else. It
finds the engine where the job runs, adds what only the running attempt knows (its GPUs, its cookie, its
folders), and becomes the engine.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from stoker.containers.script import ENTER
from stoker.errors import UsageError

AUTO = "auto"
ENGINES = ("podman", "docker", "apptainer", "bwrap")
OF_MACHINE = frozenset(
    (
        *("BASH_ENV", "CONDA_EXE", "CONDA_PREFIX", "DBUS_SESSION_BUS_ADDRESS", "ENV", "HOME"),
        *("HOSTNAME", "LD_LIBRARY_PATH", "LD_PRELOAD", "LOGNAME", "MAIL", "OLDPWD", "PATH"),
        *("PWD", "PYTHONHOME", "SHELL", "SHLVL", "SSH_AUTH_SOCK", "TMP", "TMPDIR", "TEMP"),
        *("USER", "VIRTUAL_ENV", "XDG_RUNTIME_DIR", "_"),
    )
)
"""Variables that describe this machine: in an image they would be wrong."""
_OF_ATTEMPT = (
    *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_PORT"),
    *("PET_MASTER_PORT", "MLFLOW_TRACKING_URI", "STOKER_ATTEMPT", "STOKER_CHECKPOINT_DIR"),
    *("STOKER_COOKIE", "STOKER_GPU_UUIDS", "STOKER_JOB_ID", "STOKER_RUN_DIR", "WANDB_DIR"),
    *("WANDB_SWEEP_PARAM_PATH",),
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# One argument of exec may be 128 KiB long with its closing NUL.
MAX_ARGUMENT_BYTES = 128 * 1024 - 1
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ContainerSettings(NamedTuple):
    """How containers are run: the engine, more arguments for it, and whether the home folder is mounted."""

    engine: str = AUTO
    arguments: tuple[str, ...] = ()
    home: bool = False

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> ContainerSettings:
        """Return the settings of a foreground run, which has no daemon and no settings of its own."""
        engine = env.get("STOKER_CONTAINER_ENGINE") or AUTO
        if engine not in (AUTO, *ENGINES):
            raise UsageError(
                f"STOKER_CONTAINER_ENGINE is {engine!r}: {AUTO}, or one of {', '.join(ENGINES)}"
            )
        arguments = tuple(shlex.split(env.get("STOKER_CONTAINER_ARGS", "")))
        return cls(engine, arguments, env.get("STOKER_CONTAINER_HOME") == "yes")


def read_image(text: str) -> str:
    """Read an image as a user writes it; a path becomes absolute."""
    if text.startswith("-") or not text.strip():
        raise ValueError("name an image, a .sif file or a folder: pytorch/pytorch:latest")
    is_path = text.startswith((".", "/", "~")) or text.endswith(".sif")
    return os.path.abspath(os.path.expanduser(text)) if is_path else text


def container_words(
    image: str,
    words: Sequence[str],
    names: Iterable[str],
    settings: ContainerSettings,
    *,
    gpus: int,
    mem_bytes: int | None = None,
    mounts: Sequence[str] = (),
) -> list[str]:
    """Return the words that run a command in an image.

    `names` are the variables of the job; their values are not on the command line. `mounts` are files
    and folders that the command needs besides its working folder.
    """
    engine = _engine_of(image, settings.engine)
    passed = dict.fromkeys([*sorted(names), *_OF_ATTEMPT])
    env = [
        word
        for name in passed
        if _NAME.fullmatch(name) and name not in OF_MACHINE
        for word in ("-e", name)
    ]
    given = [
        engine,
        image,
        str(gpus),
        str(mem_bytes or 0),
        "yes" if settings.home else "no",
        ":".join(mounts),
    ]
    is_shell = os.path.basename(words[0]) in ("sh", "bash", "dash", "ash")
    init = "yes" if is_shell and words[1:2] == ["-c"] else "no"
    counted = [init, str(len(env)), *env, *settings.arguments]
    if engine == "bwrap":
        counted += [*_bwrap_environment(passed), "--", "/bin/sh", "-c", 'exec "$@"', "sh", *words]
    else:
        counted += [image, *words]
    return ["/bin/sh", "-c", ENTER, "stoker-container", *given, *counted]


def _bwrap_environment(passed: Iterable[str]) -> list[str]:
    """Return the arguments with which bwrap, which passes all variables on, drops those of this machine."""
    dropped = [word for name in passed if name in OF_MACHINE for word in ("--unsetenv", name)]
    return [*dropped, "--setenv", "PATH", _PATH, "--setenv", "HOME", "/tmp"]  # noqa: S108


def line_words(
    line: str, shell: str, script_path: Callable[[], str]
) -> tuple[list[str], list[str]]:
    """Return the words of a shell line of any length, and the files that they need."""
    if len(os.fsencode(line)) < MAX_ARGUMENT_BYTES:
        return plain_words(line, shell), []
    script = script_path()
    with open(script, "wb") as file:
        file.write(os.fsencode(line) + b"\n")
    return [shell, script], [script]


def plain_words(command: str, shell: str) -> list[str]:
    """Return the words of a shell line, without the shell if it has no special character.

    Unlike a command outside of a container, nothing is looked up on this machine.
    """
    if re.fullmatch(r"[A-Za-z0-9_@%+:,./ \t-]+", command) and shell == "/bin/sh":
        words = command.split()
        if words and words[0] not in _BUILTINS:
            return words
    return [shell, "-c", command]


_BUILTINS = frozenset(
    (
        *(":", ".", "break", "cd", "command", "continue", "do", "done", "elif", "else", "esac"),
        *("eval", "exec", "exit", "export", "fi", "for", "if", "in", "read", "readonly"),
        *("return", "set", "shift", "then", "times", "trap", "type", "ulimit", "umask", "unset"),
        *("until", "wait", "while", "case"),
    )
)


def _engine_of(image: str, engine: str) -> str:
    """Return the engine that an image needs: a folder and a .sif file have one alone."""
    if engine != AUTO or not image.startswith("/"):
        return engine
    return "apptainer" if image.endswith(".sif") else "bwrap"
