"""The doors' programs by their own names, as pip installs them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Ended, Stoker


def start(
    stoker: Stoker, program: str, *words: str, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program that was installed beside Python; temporary files go to the test's folder."""
    process = subprocess.Popen(
        [os.path.join(os.path.dirname(sys.executable), program), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**door_env(stoker), **(env or {})},
        cwd=stoker.work,
    )
    return stoker.adopt(process)


def door_env(stoker: Stoker) -> dict[str, str]:
    """The environment of a user whose programs are found by their names."""
    path = f"{os.path.dirname(sys.executable)}:{stoker.env['PATH']}"
    return {**stoker.env, "TMPDIR": str(stoker.work.parent), "PATH": path}


def run(stoker: Stoker, program: str, *words: str) -> Ended:
    """Run a program to its end."""
    return stoker.end(start(stoker, program, *words))


def shell(stoker: Stoker, line: str) -> Ended:
    """Run a line as a user would type it."""
    process = subprocess.Popen(
        ["/bin/bash", "-c", line],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=door_env(stoker),
        cwd=stoker.work,
    )
    return stoker.end(stoker.adopt(process))
