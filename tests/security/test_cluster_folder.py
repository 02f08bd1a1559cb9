"""A second user of the machine against the files and sockets of Ray."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.conftest import require_ray
from integration.door import free_port
from patience import PATIENCE_S
from security.second_user import SecondUser

# Finds the folder as any user can, tries to change it, and prints what was possible.
_ATTACK = """
words = open(f"/proc/{sys.argv[3]}/cmdline").read().split("\\0")
folder = next(word.partition("=")[2] for word in words if word.startswith("--temp-dir="))
socket_path = os.path.join(folder, "session_latest", "sockets", "raylet")

def plant_a_link():
    os.symlink(sys.argv[4], os.path.join(folder, "ray_current_cluster.new"))

def take_over_the_socket():
    os.rename(socket_path, socket_path + ".old")
    socket.socket(socket.AF_UNIX).bind(socket_path)

def connect_to_the_socket():
    socket.socket(socket.AF_UNIX).connect(socket_path)

for attack in (plant_a_link, connect_to_the_socket, take_over_the_socket):
    try:
        attack()
    except PermissionError:
        pass
    else:
        print(attack.__name__)
"""


class RayHead:
    """A cluster of one box on the loopback address, whose home is too long for the sockets of Ray."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / ("long" * 10)
        self.env = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TMPDIR": tempfile.gettempdir(),
            "STOKER_HOME": str(self.home),
            "STOKER_LEASE_DIR": str(folder / "leases"),
        }
        self.port = free_port()

    def stoker(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `stoker WORDS` to its end."""
        return subprocess.run(
            [sys.executable, "-m", "stoker", *words],
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def ray_pid(self) -> int:
        """The process that minds the parts of Ray."""
        pid = json.loads((self.home / "cluster" / "minder.json").read_bytes())["ray_pid"]
        assert isinstance(pid, int)
        return pid


@pytest.fixture(scope="module")
def head() -> Iterator[RayHead]:
    """Return a cluster of one box."""
    require_ray()
    folder = Path(tempfile.mkdtemp(prefix="stoker-head-"))
    head = RayHead(folder)
    try:
        started = head.stoker("cluster", "up", "--address", "127.0.0.1", "--port", head.port)
        assert started.returncode == 0, started.stderr
        yield head
    finally:
        head.stoker("cluster", "leave")
        head.stoker("daemon", "stop", "--kill")
        shutil.rmtree(folder)


def test_a_second_user_cannot_reach_the_sockets_of_ray_nor_plant_a_link(
    head: RayHead, second_user: SecondUser, tmp_path: Path
) -> None:
    assert second_user.run(_ATTACK, str(head.ray_pid()), str(tmp_path / "victim")) == ""
