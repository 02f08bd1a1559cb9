"""A second user of the machine against the files, sockets and ports of Ray."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.conftest import require_hosts, require_ray
from cluster.grpc_call import START_SYNC
from cluster.netns_hosts import Hosts
from patience import PATIENCE_S, until
from security.second_user import SecondUser

# Finds the folder as any user can, tries to change it, and prints what was possible.
_ATTACK = """
words = open(f"/proc/{sys.argv[3]}/cmdline").read().split("\\0")
folder = next(word.partition("=")[2] for word in words if word.startswith("--temp_dir="))
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

# Sends a call without a token to every port of a process, and waits for the end of each connection.
_CALL = """
def field(name, value):
    return b"\\0" + bytes([len(name)]) + name + bytes([len(value)]) + value

def frame(kind, flags, stream, data):
    return len(data).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + data

headers = b"".join(field(*pair) for pair in (
    (b":method", b"POST"), (b":scheme", b"http"), (b":path", sys.argv[3].encode()),
    (b":authority", b"ray"), (b"te", b"trailers"), (b"content-type", b"application/grpc"),
))
data = b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + frame(4, 0, 0, b"")
data += frame(1, 4, 1, headers) + frame(0, 1, 1, bytes(5))
for port in sys.argv[5:]:
    with socket.socket() as connection:
        connection.settimeout(5)
        connection.connect((sys.argv[4], int(port)))
        connection.sendall(data)
        with contextlib.suppress(OSError):
            while connection.recv(65536):
                pass
"""

# Takes a port as soon as it is free, and prints what the first clients there send: a token, or TLS.
_TAKE_PORT = """
print("ready", flush=True)
while True:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("", 7866))
        listener.listen()
        break
    except OSError:
        listener.close()
        time.sleep(0.005)

def serve(connection):
    heard = b""
    with contextlib.suppress(OSError):
        connection.sendall(bytes.fromhex("000000040000000000" "000000040100000000"))
        while data := connection.recv(65536):
            heard += data
            if heard.startswith(b"\\x16\\x03"):
                print("TLS", flush=True)
                os._exit(0)
            if b"bearer" in heard.lower():
                print("token", flush=True)
                os._exit(0)

while True:
    threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
"""

# A module of a project that tells of every process of the cluster that it got into.
_TELL_TALE = """
import os, sys
if os.environ.get("STOKER_PART"):
    with open({marks!r}, "a") as file:
        print(os.environ["STOKER_PART"], sys.argv, file=file)
"""


class RayHead:
    """A cluster of one box in namespaces of its own, whose home is too long for the sockets of Ray."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        (self._host,) = hosts.hosts
        self._host.env["STOKER_HOME"] = str(self._host.folder / ("long" * 10))
        project = self._host.folder / "project"
        project.mkdir()
        self.marks = project / "marks"
        (project / "sitecustomize.py").write_text(_TELL_TALE.format(marks=str(self.marks)))
        hosts.ok(0, "cluster", "up", env={"PYTHONPATH": str(project)})

    def parts(self) -> dict[str, int]:
        """The pids of Ray's processes by name, as the box sees them."""
        found = self.hosts.processes(0).items()
        names = ("ray_waiter.py", "gcs_server", "raylet/raylet")
        return {
            name: pid for name in names for pid, words in found if name in words.split(" --")[0]
        }

    def ports(self) -> list[str]:
        """The ports at which the GCS and the raylet listen."""
        lines = self.hosts.run(0, ["ss", "-ltnpH"]).stdout.splitlines()
        return [
            line.split()[3].rpartition(":")[2]
            for line in lines
            if re.search(r'"(gcs_server|raylet)"', line)
        ]


@pytest.fixture(scope="module")
def head() -> Iterator[RayHead]:
    """Return a cluster of one box."""
    require_ray()
    require_hosts()
    with Hosts(hosts=1) as hosts:
        yield RayHead(hosts)
        hosts.ok(0, "cluster", "leave")


@pytest.fixture
def neighbour(head: RayHead, second_user: SecondUser) -> Iterator[SecondUser]:
    """Return the second user, at work on the box of the cluster."""
    second_user.enter = head.hosts.hosts[0].words
    yield second_user
    second_user.enter = list


def test_a_second_user_cannot_reach_the_sockets_of_ray_nor_plant_a_link(
    head: RayHead, neighbour: SecondUser, tmp_path: Path
) -> None:
    raylet = head.parts()["raylet/raylet"]
    assert neighbour.run(_ATTACK, str(raylet), str(tmp_path / "victim")) == ""


def test_modules_of_a_project_do_not_get_into_ray(head: RayHead) -> None:
    assert head.parts()
    assert not head.marks.exists()


def test_a_second_user_cannot_end_ray_by_a_call_without_a_token(
    head: RayHead, neighbour: SecondUser
) -> None:
    until(lambda: len(head.parts()) == len(head.ports()) == 3, "all of Ray runs")
    before, ports = head.parts(), head.ports()
    neighbour.run(_CALL, START_SYNC, head.hosts.address(0), *ports)
    assert head.parts() == before


def test_a_second_user_who_takes_the_port_of_ray_is_not_sent_the_token(
    head: RayHead, neighbour: SecondUser
) -> None:
    thief = neighbour.start_until_ready(_TAKE_PORT)
    head.hosts.kill(0, head.parts()["gcs_server"])
    out, err = thief.communicate(timeout=PATIENCE_S)
    assert (out, err) == ("TLS\n", "")
