"""A second unix user of the machine, who attacks the first."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable

from patience import PATIENCE_S

# The second user may not be able to read the interpreter: import everything first, then drop the rights.
_BECOME = """
import array, contextlib, ctypes, errno, fcntl, hashlib, hmac, http.client, json, os, resource, select
import selectors, signal, socket, stat, struct, sys, threading, time, urllib.request
uid, gid = map(int, sys.argv[1:3])
os.setgroups([])
os.setresgid(gid, gid, gid)
os.setresuid(uid, uid, uid)
os.environ.clear()
os.environ["PATH"] = "/usr/bin:/bin"
os.chdir("/")
del uid, gid
exec(compile(sys.stdin.read(), "<second user>", "exec"))
"""


class SecondUser:
    """An account of the machine without any rights; its processes are real processes of that user."""

    def __init__(self, name: str) -> None:
        entry = pwd.getpwnam(name)
        self.name = name
        self.uid = entry.pw_uid
        self.gid = entry.pw_gid
        # Wraps a command, so that it runs in other namespaces.
        self.enter: Callable[[list[str]], list[str]] = list
        self._started: list[subprocess.Popen[str]] = []

    def start(self, source: str, *arguments: str) -> subprocess.Popen[str]:
        """Start Python source as this user; `sys.argv[3:]` holds the arguments.

        The source may use the modules that are imported before the process gives up its rights,
        and prints "ready" if the caller waits for that with `ready`.
        """
        words = [sys.executable, "-I", "-c", _BECOME, str(self.uid), str(self.gid), *arguments]
        process = subprocess.Popen(
            self.enter(words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        assert process.stdin is not None
        process.stdin.write(textwrap.dedent(source))
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, source: str, *arguments: str) -> str:
        """Run Python source as this user to its end, which must be a success; its output."""
        process = self.start(source, *arguments)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        return out

    def start_until_ready(self, source: str, *arguments: str) -> subprocess.Popen[str]:
        """Start Python source as this user, and return once it has printed the line "ready"."""
        process = self.start(source, *arguments)
        assert process.stdout is not None
        line = process.stdout.readline()
        if line.strip() != "ready":
            out, err = process.communicate(timeout=PATIENCE_S)
            raise AssertionError(f"the second user's process is not ready: {line}{out}{err}")
        return process

    def close(self) -> None:
        """End every process that this user has."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            with process:
                pass


def make_second_user(name: str) -> SecondUser:
    """Add an account to this machine. Needs root."""
    subprocess.run(
        ["useradd", "--no-create-home", "--home-dir", "/nonexistent", "--no-user-group", name],
        check=True,
        capture_output=True,
    )
    return SecondUser(name)


def remove_second_user(user: SecondUser) -> None:
    """Remove the account again."""
    user.close()
    subprocess.run(["userdel", user.name], check=True, capture_output=True)


def why_not() -> str | None:
    """Why this machine cannot have a second user; None if it can."""
    if os.getuid() != 0:
        return "only root can add a second user"
    if shutil.which("useradd") is None:
        return "there is no useradd: apt-get install passwd"
    return None
