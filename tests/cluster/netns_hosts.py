"""Several hosts on one machine: each in namespaces of its own, on a bridge that nobody else sees.

A host is a process tree under an init of its own (network, pid, mount, uts, ipc and time namespaces).
It has its own address, name, machine id, boot id, Stoker home, lease folder and fake GPUs,
and has been up for a time of its own;
the disk and the programs on it are the machine's. The bridge lives in a network namespace of its own
too, so that hosts know nothing of each other and the machine's network is left as it is. Nothing has
a name outside: when the processes are gone, and they go even if the test is killed, so is all else.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from stoker.testing.state import GIB, FakeGpus

_TOOLS = ("ip", "mount", "nsenter", "setpriv", "unshare")
_NAMESPACES = ("--net", "--pid", "--mount", "--uts", "--ipc", "--time")
_DAY_S = 86400
# The death of whoever started the hosts, however it came about, is the death of the hosts.
_MORTAL = ("setpriv", "--pdeathsig", "KILL", "--")
_PATIENCE_S = 20.0
# Orphans end unnoticed: where SIGCHLD is ignored, the kernel reaps.
_PAUSE = """\
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    signal.pause()
"""
_INIT = """\
set -e
for path in etc/hosts etc/machine-id proc/sys/kernel/random/boot_id; do
  if [ -e "/$path" ]; then mount --bind "$1/${path##*/}" "/$path"; fi
done
case "$1" in
  /dev/shm/*) ;;  # its own would hide its disk
  *) mount -t tmpfs -o size=1g tmpfs /dev/shm ;;
esac
echo "$2" >/proc/sys/kernel/hostname
echo ready
exec "$3" -I -S -c "$4"
"""
_SWITCH = "ip link add lan type bridge && ip link set lan up && echo ready && exec sleep infinity"


@functools.cache
def why_not() -> str | None:
    """Why there can be no hosts here; None if there can."""
    if os.getuid() != 0:
        return "a test hosts of several hosts needs root, to make namespaces"
    for tool in _TOOLS:
        if shutil.which(tool) is None:
            return f"there is no `{tool}`: apt-get install iproute2 util-linux"
    probe = ["unshare", *_NAMESPACES, "--fork", "--mount-proc", "sh", "-c"]
    probe.append("ip link add lan type bridge && mount -t tmpfs tmpfs /dev/shm")
    ended = subprocess.run(probe, capture_output=True, text=True)
    if ended.returncode:
        return f"namespaces are not allowed here: {ended.stderr.strip()}"
    return None


class Host:
    """One host of a hosts: what stays of it while its power is off, and its init while it is on."""

    def __init__(self, hosts: Hosts, number: int, gpus: FakeGpus) -> None:
        self.name = f"h{number}"
        self.address = f"10.77.0.{number + 1}"
        self._hardware = f"02:00:00:00:00:{number + 1:02x}"
        self.folder = hosts.folder / self.name
        self.home = self.folder / "home"
        self.work = self.folder / "work"
        self.gpus = gpus
        self.init: int | None = None
        self._hosts = hosts
        self._boots = 0
        self._up_s = number * _DAY_S
        self._unshare: subprocess.Popen[str] | None = None
        self.work.mkdir(parents=True)
        self._write("machine-id", uuid.uuid4().hex)
        self.env = {
            "HOME": str(self.folder),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.folder),
            "STOKER_HOME": str(self.home),
            "STOKER_LEASE_DIR": str(self.folder / "leases"),
            **gpus.env(),
        }

    @property
    def port_name(self) -> str:
        """Its end of the cable at the bridge; another after each boot, as the old one goes late."""
        return f"{self.name}.{self._boots}"

    def power_on(self) -> None:
        """Boot it: a new boot id, no processes, the disk as it was left."""
        assert self._unshare is None, f"{self.name} is on already"
        self._boots += 1
        self._write("boot_id", str(uuid.uuid4()))
        self._write("hosts", "127.0.0.1 localhost\n" + self._hosts.hosts_file())
        made = ["unshare", *_NAMESPACES, "--fork", "--kill-child=KILL", "--mount-proc"]
        made += [f"--boottime={self._up_s}", f"--monotonic={self._up_s}"]
        init = ["sh", "-c", _INIT, "init", str(self.folder), self.name, sys.executable, _PAUSE]
        self._unshare = _start([*made, *init])
        self.init = _only_child(self._unshare.pid)
        self._plug_in()

    def _plug_in(self) -> None:
        # A host keeps its hardware address, or the others would go on sending to the old one.
        cable = f"link add {self.port_name} type veth peer name eth0 address {self._hardware}"
        self._hosts.at_switch(*cable.split(), "netns", str(self.init))
        self._hosts.at_switch("link", "set", self.port_name, "master", "lan", "up")
        for words in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{self.address}/24", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
        ):
            _ip(self.init, *words)

    def power_off(self) -> None:
        """Pull the plug: every process of the host is gone when this returns."""
        if self._unshare is None:
            return
        if self.init is not None:
            with _watched(self.init) as is_gone:
                self._unshare.kill()
                assert is_gone(_PATIENCE_S), f"{self.name} does not end"
        self._unshare.kill()
        _reap(self._unshare)
        self._unshare = self.init = None

    def words(self, argv: Sequence[str | os.PathLike[str]]) -> list[str]:
        """The command that runs another one inside this host, in its working folder."""
        assert self.init is not None, f"{self.name} is off"
        enter = ["nsenter", "--target", str(self.init), *_NAMESPACES]
        into = ["sh", "-c", 'cd "$0" && exec "$@"', str(self.work)]
        return [*enter, *into, *(os.fspath(word) for word in argv)]

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(f"{text}\n")


class Hosts:
    """Hosts h0, h1, … that can reach each other, and nothing else; for a `with` block.

    They are named by their numbers. `folder` is where their disks are, by default a short path under
    the machine's temporary folder, which is removed at the end. `library` is the folder of the C
    fake of NVML; each host gets `gpus` GPUs.
    """

    def __init__(
        self,
        folder: Path | None = None,
        hosts: int = 3,
        *,
        library: str | None = None,
        gpus: int = 4,
        mem_bytes: int = 8 * GIB,
    ) -> None:
        self._own = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="b-"))
        self._switch: subprocess.Popen[str] | None = None
        self._spawned: list[subprocess.Popen[str]] = []
        self.hosts: list[Host] = []
        for number in range(hosts):
            box = FakeGpus(self.folder / f"h{number}" / "nvml", library).create(gpus, mem_bytes)
            self.hosts.append(Host(self, number, box))

    def __enter__(self) -> Hosts:  # noqa: PYI034 - Self came with Python 3.11
        try:
            self._switch = _start(["unshare", "--net", "sh", "-c", _SWITCH])
            for host in self.hosts:
                host.power_on()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process of every host, and with them all that was made for them."""
        try:
            for host in self.hosts:
                host.power_off()
            for process in self._spawned:
                process.kill()
                _reap(process)
        finally:
            if self._switch is not None:
                self._switch.kill()
                _reap(self._switch)
                self._switch = None
            if self._own:
                shutil.rmtree(self.folder, ignore_errors=True)

    def run(
        self,
        host: int,
        argv: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        timeout_s: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a host to its end."""
        return subprocess.run(
            self.hosts[host].words(argv),
            input=stdin,
            capture_output=True,
            text=True,
            env={**self.hosts[host].env, **(env or {})},
            timeout=timeout_s,
        )

    def spawn(
        self,
        host: int,
        argv: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a command in a host, with pipes; it ends with the host at the latest.

        Killing what is returned kills only what waits outside for the command's end.
        """
        process = subprocess.Popen(
            self.hosts[host].words(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.hosts[host].env, **(env or {})},
        )
        self._spawned.append(process)
        return process

    def stoker(
        self, host: int, *words: str, env: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run `stoker WORDS` in a host to its end."""
        return self.run(host, [sys.executable, "-m", "stoker", *words], env=env, stdin=stdin)

    def ok(self, host: int, *words: str, env: Mapping[str, str] | None = None) -> str:
        """The output of `stoker WORDS`, which must succeed."""
        ended = self.stoker(host, *words, env=env)
        assert ended.returncode == 0, (words, ended)
        return ended.stdout

    def address(self, host: int) -> str:
        """The address under which the others reach a host."""
        return self.hosts[host].address

    def home(self, host: int) -> Path:
        """The Stoker home of a host."""
        return self.hosts[host].home

    def cut(self, host: int) -> None:
        """Unplug a host's cable: nothing gets through, and nobody is told."""
        self.at_switch("link", "set", self.hosts[host].port_name, "down")

    def mend(self, host: int) -> None:
        """Plug a host's cable in again."""
        self.at_switch("link", "set", self.hosts[host].port_name, "up")

    def power_off(self, host: int) -> None:
        """Pull a host's plug: all its processes are gone when this returns; its disk stays."""
        self.hosts[host].power_off()

    def power_on(self, host: int) -> None:
        """Boot a host that is off."""
        self.hosts[host].power_on()

    def processes(self, host: int) -> dict[int, str]:
        """The processes of a host by the pids that they have inside, and their command lines."""
        init = self.hosts[host].init
        return {} if init is None else dict(_list_processes(f"/proc/{init}/root/proc"))

    def kill(self, host: int, pid: int, signum: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a process of a host, named by the pid that it has inside."""
        ended = self.run(host, ["sh", "-c", f"kill -{signum.value} {pid}"])
        assert ended.returncode == 0, ended.stderr

    def hosts_file(self) -> str:
        """What every host knows of the names of all."""
        return "".join(f"{host.address} {host.name}\n" for host in self.hosts)

    def at_switch(self, *words: str) -> None:
        """Run `ip WORDS` where the bridge is."""
        assert self._switch is not None, "the hosts is closed"
        _ip(self._switch.pid, *words)


def _start(argv: Sequence[str]) -> subprocess.Popen[str]:
    """Start what says when it is ready, and return it then."""
    process = subprocess.Popen(
        [*_MORTAL, *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        process.kill()
        raise RuntimeError(f"{argv[0]}: {process.communicate()[1].strip()}")
    return process


def _reap(process: subprocess.Popen[str]) -> None:
    with process:
        process.wait(_PATIENCE_S)


def _ip(pid: int | None, *words: str) -> None:
    subprocess.run(["nsenter", "--target", str(pid), "--net", "ip", *words], check=True)


def _list_processes(proc: str) -> Iterator[tuple[int, str]]:
    for name in os.listdir(proc):
        if name.isdigit() and name != "1":
            with (
                contextlib.suppress(FileNotFoundError, ProcessLookupError),
                open(f"{proc}/{name}/cmdline", "rb") as file,
            ):
                words = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
                if words:  # a zombie has none
                    yield int(name), words


def _only_child(pid: int) -> int:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        (child,) = file.read().split()
    return int(child)


@contextlib.contextmanager
def _watched(pid: int) -> Iterator[_Gone]:
    fd = os.pidfd_open(pid)
    try:
        yield _Gone(fd)
    finally:
        os.close(fd)


class _Gone:
    """Tells whether a process has ended, and with an init all others of its namespace."""

    def __init__(self, fd: int) -> None:
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    def __call__(self, patience_s: float) -> bool:
        return bool(self._poll.poll(patience_s * 1000))
