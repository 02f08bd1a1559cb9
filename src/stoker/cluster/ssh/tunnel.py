"""`python -m stoker.cluster.ssh.tunnel`: keeps the tunnel to one node of a cluster over ssh, on the head.

In such a cluster every machine has an address of the loopback interface, the same for all: the head
127.77.0.1, the nodes the next ones. Ports differ from machine to machine. ssh listens at the node's address
and ports here, and the relay on the node at those of the head (`relay`). If the connection breaks, it is made
again.

    <home>/cluster/tunnel-ADDRESS.json    how to reach the node
    <home>/cluster/tunnel-ADDRESS.lock    held by the process, contains its pid
"""

from __future__ import annotations

import contextlib
import glob
import ipaddress
import os
import select
import signal
import subprocess
import sys
import time

import msgspec

from stoker import pid_lock
from stoker.cluster.settings import (
    OVER_SSH_HEAD,
    PORT_COUNT,
    folder_of,
    load_settings,
    read_struct,
    write_file,
)
from stoker.cluster.ssh.connection import SshConnection, explain
from stoker.cluster.ssh.remote_program import call, quote
from stoker.detached import start, start_and_wait
from stoker.errors import StokerError
from stoker.home import find_home
from stoker.interpreter import module_words

_MODULE = "stoker.cluster.ssh.tunnel"
_READY_S = 60.0
_END_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 15.0


class Tunnel(msgspec.Struct, frozen=True, kw_only=True):
    """How a node is reached, and what it is called on every machine."""

    target: str
    python: str  # that was there before
    digest: str  # of its private environment, which has the relay
    address: str
    first_port: int
    has_joined: bool = False  # from then on, the tunnel is kept up


def node_address(number: int) -> str:
    """Return the address of a node on every machine; the head is number 0."""
    return str(ipaddress.ip_address(OVER_SSH_HEAD) + number)


def save_tunnel(home: str, tunnel: Tunnel) -> None:
    """Record a tunnel. Callers hold the lock of the membership."""
    write_file(home, _name(tunnel.address, "json"), msgspec.json.encode(tunnel))


def keep_tunnel(home: str, address: str, digest: str) -> None:
    """Keep a tunnel up from now on; its next connection uses this environment of the node."""
    known = read_struct(_path(home, address, "json"), Tunnel)
    if known is not None:
        save_tunnel(home, msgspec.structs.replace(known, digest=digest, has_joined=True))


def open_tunnel(home: str, address: str) -> None:
    """Start a tunnel's process and wait until it is connected; raise StokerError if it is not."""
    said = start_and_wait(
        "the tunnel", _words(address), _log_path(home), _environment(home), _READY_S
    )
    if said != "ready":
        reason = said.removeprefix("error: ") or "no reason given"
        raise StokerError(f"the ssh tunnel to the box does not open: {reason}")


def close_tunnel(home: str, address: str) -> None:
    """End a tunnel's process, and forget the tunnel."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_path(home, address, "json"))  # first: else it is started again
    lock = _path(home, address, "lock")
    pid = pid_lock.holder_pid(lock)
    if pid:
        pid_lock.end_holder(lock, pid, _END_S)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(lock)


def close_tunnels(home: str) -> None:
    """End all tunnels of a head."""
    for address in _addresses(home):
        close_tunnel(home, address)


def ensure_tunnels(home: str) -> None:
    """Start the tunnels to nodes that do not run, as after a reboot. Does not wait."""
    for address in _addresses(home):
        known = read_struct(_path(home, address, "json"), Tunnel)
        is_open = pid_lock.holder_pid(_path(home, address, "lock")) is not None
        if known is not None and known.has_joined and not is_open:
            start("the tunnel", _words(address), _log_path(home), _environment(home))


def free_number(home: str) -> int:
    """Return the number of the next node: from 1 on, as the head is 0."""
    taken = {int(address.rpartition(".")[2]) - 1 for address in _addresses(home)}
    return next(number for number in range(1, 250) if number not in taken)


class _Keeper:
    """Keeps one tunnel open until told to stop."""

    def __init__(self, home: str, tunnel: Tunnel, ready_fd: int | None) -> None:
        settings = load_settings(home)
        if settings is None or not settings.is_head:
            raise StokerError("this box is not the head of a cluster")
        self._home = home
        self._tunnel = tunnel
        self._head = settings
        self._ready_fd = ready_fd
        self._wake, self._wake_writer = os.pipe()

    def ask_to_stop(self) -> None:
        """End the tunnel; safe in a signal handler."""
        os.write(self._wake_writer, b"x")

    def run(self) -> None:
        """Connect again and again, until told to stop or until the tunnel is forgotten."""
        pause_s = _FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                known = read_struct(_path(self._home, self._tunnel.address, "json"), Tunnel)
                if known is None:
                    _log(f"the tunnel to {self._tunnel.target} is forgotten")
                    self._tell("error: it was removed\n")
                    return
                self._tunnel = known
                reason = self._connect()
            except StokerError as error:
                reason = str(error)
            _log(f"the tunnel to {self._tunnel.target} is closed: {reason}")
            self._tell(f"error: {reason}\n")
            if time.monotonic() - began > _READY_S:
                pause_s = _FIRST_PAUSE_S
            if self._is_stopped(pause_s):
                return
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _connect(self) -> str:
        """Open the tunnel, and wait for its end. Returns the reason."""
        tunnel = self._tunnel
        with SshConnection(tunnel.target) as connection:
            found = call(connection, tunnel.python, "prepare_tunnel", {"digest": tunnel.digest})
        pipe = subprocess.PIPE
        words = self._words(found["python"], found["folder"])
        with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            try:
                return self._follow(process)
            finally:
                process.terminate()

    def _follow(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        assert process.stderr is not None
        while True:
            ready, _, _ = select.select([process.stdout.fileno(), self._wake], [], [])
            if self._wake in ready:
                return "told to stop"
            line = process.stdout.readline()
            if not line:
                process.terminate()
                said = process.stderr.read().decode(errors="replace")
                return explain(self._tunnel.target, said)
            if line.strip() == b"ready":
                _log(f"the tunnel to {self._tunnel.target} is open")
                self._tell("ready\n")

    def _words(self, python: str, folder: str) -> list[str]:
        """Return the command of ssh: the node's ports here, and the head's ports as sockets there."""
        tunnel, head = self._tunnel, self._head
        ports = head.ray_ports
        assert ports is not None
        forwards = []
        for port in range(tunnel.first_port, tunnel.first_port + PORT_COUNT):
            forwards += ["-L", f"{tunnel.address}:{port}:{tunnel.address}:{port}"]
        for port in range(head.port, ports.last_worker + 1):
            forwards += ["-R", f"{folder}/{port}:{head.address}:{port}"]
        command = (
            f"exec {quote(python)} -I -m stoker.cluster.ssh.relay {quote(folder)} {head.address}"
            f" {head.port} {ports.last_worker}"
        )
        return [
            *(
                "ssh",
                "-T",
                "-o",
                "BatchMode=yes",
                "-o",
                "ControlPath=none",
                "-o",
                "ConnectTimeout=15",
            ),
            *(
                "-o",
                "ExitOnForwardFailure=yes",
                "-o",
                "ServerAliveInterval=5",
                "-o",
                "ServerAliveCountMax=3",
            ),
            *("-o", "ForwardAgent=no", "-o", "ForwardX11=no"),
            *forwards,
            *("--", tunnel.target, command),
        ]

    def _is_stopped(self, pause_s: float) -> bool:
        return bool(select.select([self._wake], [], [], pause_s)[0])

    def _tell(self, text: str) -> None:
        """Answer the process that started this one, once."""
        if self._ready_fd is not None:
            with contextlib.suppress(OSError):
                os.write(self._ready_fd, text.encode(errors="replace"))
                os.close(self._ready_fd)
            self._ready_fd = None


def _addresses(home: str) -> list[str]:
    names = map(os.path.basename, glob.glob(_path(glob.escape(home), "*", "json")))
    return sorted(name.removeprefix("tunnel-").removesuffix(".json") for name in names)


def _path(home: str, address: str, kind: str) -> str:
    return os.path.join(folder_of(home), _name(address, kind))


def _name(address: str, kind: str) -> str:
    return f"tunnel-{address}.{kind}"


def _log_path(home: str) -> str:
    return os.path.join(folder_of(home), "tunnels.log")


def _words(address: str) -> list[str]:
    return module_words(_MODULE, address)


def _environment(home: str) -> dict[str, str]:
    return {**os.environ, "STOKER_HOME": home, "STOKER_PART": "tunnel"}


def _log(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        sys.stderr.flush()


def main() -> int:
    """Keep the tunnel to the node with this address: ADDRESS [--ready-fd N]."""
    address = sys.argv[1]
    ready_fd = int(sys.argv[3]) if "--ready-fd" in sys.argv else None
    home = find_home()
    path = _path(home, address, "json")
    if not os.path.exists(path) or pid_lock.take(_path(home, address, "lock")) is None:
        return 1
    tunnel = read_struct(path, Tunnel)  # with the lock: it may have been forgotten meanwhile
    if tunnel is None:
        return 1
    keeper = _Keeper(home, tunnel, ready_fd)
    for signum in (signal.SIGHUP, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_IGN)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: keeper.ask_to_stop())
    keeper.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
