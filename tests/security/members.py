"""Real users of the machine, each with a daemon of its own, on fake GPUs that they share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from patience import PATIENCE_S
from security.second_user import SecondUser
from stoker.testing.state import GIB, FakeGpus

# A user of its own must be able to read this interpreter and the tests, wherever they are.
_MAY_READ = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


class Member:
    """A user with a daemon of its own."""

    def __init__(self, user: SecondUser, folder: Path, leases: Path, box: FakeGpus) -> None:
        self.user = user
        self.home = folder / user.name
        self.home.mkdir()
        os.chown(self.home, user.uid, user.gid)
        self._env = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.home),
            "STOKER_HOME": str(self.home / "stoker"),
            "STOKER_LEASE_DIR": str(leases),
            **box.env(),
        }

    def ok(self, *words: str, stdin: str = "") -> str:
        """Run a verb, which must succeed; its output."""
        ids = (f"--reuid={self.user.uid}", f"--regid={self.user.gid}", "--clear-groups")
        ended = subprocess.run(
            ["setpriv", *ids, *_MAY_READ, sys.executable, "-m", "stoker", *words],
            env=self._env,
            cwd=self.home,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def states(self) -> dict[int, str]:
        """The state of each job."""
        return {job["id"]: job["state"] for job in json.loads(self.ok("ls", "-a", "--json"))}

    def close(self) -> None:
        """Stop the daemon and its jobs."""
        self.ok("daemon", "stop", "--kill")


def make_gpus(folder: Path, library: str, count: int) -> FakeGpus:
    """Make fake GPUs that every user can use."""
    box = FakeGpus(folder, library).create(count, 8 * GIB)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777)
    return box
