"""Environment of jobs on a node: what belongs to the machine replaces what comes from the head.

A job gets the environment in which it was submitted on the head. Home, temporary folder, PATH and the like
name folders of that machine, so a node sets its own. `stoker cluster join` records them, together with the
variables of `--env` and those that `--setup` sets.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping

from stoker.errors import StokerError, UsageError

OWN = (
    *("HOME", "TMPDIR", "PATH", "STOKER_HOME"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"),
)
"""Variables that a node sets as they are there, and removes if they are not set there."""

_ACTIVATED = ("VIRTUAL_ENV", "CONDA_PREFIX")
_SETUP_S = 60.0
_SHELL_NOISE = frozenset(("_", "SHLVL", "PWD", "OLDPWD"))


def parse_variables(texts: Iterable[str]) -> dict[str, str]:
    """Parse variables of a command line: `DATA=/mnt/data`."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.isidentifier() or not name.isascii() or "\0" in value:
            raise UsageError(f"--env {text!r}: write NAME=VALUE")
        if name.startswith("STOKER_"):
            raise UsageError(f"--env {text!r}: names that begin with STOKER_ are Stoker's own")
        found[name] = value
    return found


def own_environment(
    home: str, environ: Mapping[str, str], variables: Mapping[str, str], setup: str | None
) -> dict[str, str]:
    """Return the variables of this machine for jobs: its own, those that the setup sets, and the given ones.

    Raises StokerError if the setup fails.
    """
    found = {name: environ[name] for name in OWN if name in environ}
    if setup is not None:
        found |= _run_setup(setup, environ)
    return {**found, "STOKER_HOME": home, **variables}


def fit_environment(env: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a job for a machine with these own variables.

    A virtual or conda environment that was active on submission stays first in PATH, if the machine has
    its folder: as on a shared file system.
    """
    fitted = {name: value for name, value in env.items() if name not in OWN}
    fitted |= own
    active = [
        folder
        for folder in env.get("PATH", "").split(os.pathsep)
        if _is_active(folder, env) and os.path.isdir(folder)
    ]
    if active:
        fitted["PATH"] = os.pathsep.join([*active, own.get("PATH", os.defpath)])
    return fitted


def _is_active(folder: str, env: Mapping[str, str]) -> bool:
    roots = [env[name] for name in _ACTIVATED if env.get(name)]
    return any(folder == root or folder.startswith(f"{root}/") for root in roots)


def _run_setup(setup: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Run a setup in a shell, and return the variables that it has set or changed."""
    shell = shutil.which("bash") or "/bin/sh"
    command = [shell, "-c", f"{setup}\ncode=$?; env -0; exit $code"]
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=dict(environ),
            timeout=_SETUP_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StokerError(f"--setup has not ended within {_SETUP_S:.0f}s: {setup}") from None
    if ended.returncode:
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        raise StokerError(f"--setup fails ({(lines or ['no reason given'])[-1][:300]}): {setup}")
    entries = ended.stdout.split(b"\0")
    # What the setup prints comes before the first variable.
    entries[0] = entries[0].rpartition(b"\n")[2]
    found = {}
    for entry in entries:
        name, sign, value = os.fsdecode(entry).partition("=")
        is_usual = name.isidentifier() and name not in _SHELL_NOISE
        if sign and is_usual and environ.get(name) != value and not name.startswith("STOKER_"):
            found[name] = value
    return found
