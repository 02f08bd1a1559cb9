"""Does one harm after another to a cluster: kills its parts, cuts its cables, fills its disks."""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import stoker
from cluster.cluster_fixture import Lab, until
from cluster.installed import Installed
from cluster.netns_hosts import Hosts
from fault.clock import Clock
from fault.table import say
from stoker.cluster.protocol import PROTOCOL

# A lease that runs out is no fault; with so short a one it happens.
LEASE_S = 10.0
SEEN_WITHIN_S = 10.0
BACK_WITHIN_S = 180.0
LONGEST_PAUSE_S = 1.0
OLD = "0.0.9"
_DISK_MB = 64
_FULL_S = 15.0
_BLOCKED_S = 15.0
_NOT_THERE = "02:00:00:00:00:99"  # a hardware address that no host has
# Not behind the true time: gRPC also has a clock of its own, after which its calls would all be late.
_OFFSETS_S = (0, 10, 60, 600, 3600)
# All that a `pkill -9 -f python` on a node finds; jobs and the shell watchdog are no Python.
_HELPERS = ("python", "ray::")


class Disks:
    """A small disk for the files of the queue on each node, which outlasts the loss of power."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        for host in range(1, len(hosts.hosts)):
            image = self._image(host)
            with image.open("wb") as file:
                file.truncate(_DISK_MB << 20)
            subprocess.run(["mkfs.ext4", "-q", image], check=True)
            self.mount(host)

    def _image(self, host: int) -> Path:
        return self._hosts.hosts[host].folder / "disk"

    def _folder(self, host: int) -> Path:
        return self._hosts.home(host) / "cluster" / "queues"

    def mount(self, host: int) -> None:
        """Mount the disk in a host that has just booted."""
        self._folder(host).mkdir(parents=True, exist_ok=True)
        self._hosts.home(host).chmod(0o700)
        words = ["mount", "-o", "loop", str(self._image(host)), str(self._folder(host))]
        mounted = self._hosts.run(host, words)
        assert mounted.returncode == 0, mounted.stderr
        self.empty(host)

    def fill(self, host: int) -> None:
        """Write until nothing fits any more."""
        fill = 'for size in 65536 512 1; do dd if=/dev/zero of="$0/fill$size" bs=$size; done'
        self._hosts.run(host, ["sh", "-c", fill, str(self._folder(host))])

    def empty(self, host: int) -> None:
        """Remove what filled the disk."""
        if self._hosts.hosts[host].init is not None:
            self._hosts.run(host, ["sh", "-c", 'rm -f "$0"/fill*', str(self._folder(host))])


class Saboteur:
    """Does one thing after another; what takes its time goes on meanwhile."""

    def __init__(self, hosts: Hosts, rng: random.Random) -> None:
        self._rng = rng
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._disks = Disks(hosts)
        self._clocks: dict[int, Clock] = {}
        for host in (1, 2):
            self._clocks[host] = Clock(hosts.hosts[host].folder)
            hosts.hosts[host].env.update(self._clocks[host].env)
        self._installed = [Installed(hosts, host, OLD) for host in range(3)]
        self.done: Counter[str] = Counter()
        self.seen_s: list[float] = []
        self._lab = Lab(hosts, LEASE_S)

    @property
    def lab(self) -> Lab:
        """The cluster."""
        return self._lab

    def strike(self, kind: str) -> None:
        """Do it to a box that is there, or to the head."""
        time.sleep(self._rng.uniform(0.0, LONGEST_PAUSE_S))  # to strike at any moment
        host = self._choose()
        say(f"{time.strftime('%H:%M:%S')} {kind} (h{host})")
        match kind.split():
            case ["daemon" | "bridge"]:
                self._kill(0, kind)
            case [part, "of", "the", "head"]:
                self._kill(0, part)
            case ["head", "off", seconds, "s"]:
                self._power_off_the_head(float(seconds))
            case ["power", "off", "the", "head"]:
                self._power_off_the_head(self._rng.uniform(0.0, 2 * LEASE_S))
            case ["restart"]:
                self._lab.ok("daemon", "restart")
            case ["cut", seconds, "s"]:
                self._cut(host, float(seconds))
            case ["power", "off"]:
                self._power_off(host)
            case ["ray_supervisor"]:
                self._kill(host, "ray_supervisor")
                self._at(2.0, lambda: self._rejoin(host))
            case ["helpers"]:
                self._kill_helpers(host)
            case ["full", "disk"]:
                self._disks.fill(host)
                self._at(_FULL_S, lambda: self._disks.empty(host))
            case ["firewall"]:
                self._block(host)
            case ["upgrade"]:
                self._upgrade()
            case ["clock"]:
                self._clocks[host].set(self._rng.choice(_OFFSETS_S))
            case _:
                self._kill(host, kind)
        self.done[kind] += 1

    def go_on(self) -> None:
        """Do what has fallen due."""
        due = [entry for entry in self._later if entry[0] <= time.monotonic()]
        self._later = [entry for entry in self._later if entry not in due]
        for _at, act in due:
            act()

    def make_good(self) -> None:
        """Have everything there again."""
        while self._later:
            self.go_on()
            time.sleep(0.1)
        self._lab.ok("status")
        for host in (1, 2):
            self._lab.until_there(host, BACK_WITHIN_S)

    def _choose(self) -> int:
        """A box that is there; boxes that are not come back while we wait."""

        def there() -> list[int]:
            self.go_on()
            if self._lab.pid(0, "daemon") is None:
                self._lab.ok("status")
            return [host for host in (1, 2) if self._lab.is_there(host)]

        return self._rng.choice(until(there, "a box is there", BACK_WITHIN_S))

    def _kill(self, host: int, part: str) -> None:
        """Kill a part as soon as there is one: a fault before may have ended it too."""

        def killed() -> bool:
            self.go_on()
            if self._lab.pid(0, "daemon") is None:
                self._lab.ok("status")
            return self._lab.kill(host, part)

        until(killed, f"h{host} has a {part}", BACK_WITHIN_S)

    def _kill_helpers(self, host: int) -> None:
        """Kill all of Stoker and Ray on a node at once, but no job."""
        found = self._lab.hosts.processes(host).items()
        pids = [str(pid) for pid, words in found if any(word in words for word in _HELPERS)]
        self._lab.hosts.run(host, ["sh", "-c", f"kill -9 {' '.join(pids)}"])
        self._at(2.0, lambda: self._rejoin(host))

    def _power_off_the_head(self, pause_s: float) -> None:
        self._lab.hosts.power_off(0)
        time.sleep(pause_s)  # nothing else can be done meanwhile
        self._lab.hosts.power_on(0)
        self._lab.ok("status")

    def _cut(self, host: int, pause_s: float) -> None:
        at = time.monotonic()
        self._lab.hosts.cut(host)
        self._at(pause_s, lambda: self._lab.hosts.mend(host))
        if pause_s > SEEN_WITHIN_S:
            self._until_seen(host, at)

    def _block(self, host: int) -> None:
        """Let nothing pass from a node to the head for a while, as a firewall that drops packets does."""
        head = self._lab.hosts.address(0)
        change = ["ip", "neigh", "replace", head, "dev", "eth0"]
        blocked = self._lab.hosts.run(host, [*change, "lladdr", _NOT_THERE, "nud", "permanent"])
        assert blocked.returncode == 0, blocked.stderr

        def unblock() -> None:
            if self._lab.hosts.hosts[host].init is not None:
                self._lab.hosts.run(host, ["ip", "neigh", "del", head, "dev", "eth0"])

        self._at(_BLOCKED_S, unblock)

    def _upgrade(self) -> None:
        """Install another version everywhere, on the head first, while jobs run."""
        is_old = self.done["upgrade"] % 2 == 0
        version, protocol = (stoker.__version__, PROTOCOL) if is_old else (OLD, PROTOCOL - 1)
        self._installed[0].set_version(version, PROTOCOL)  # a head understands the protocol before
        self._lab.ok("daemon", "restart")
        for host in (1, 2):
            self._installed[host].set_version(version, protocol)
            self._rejoin(host)

    def _power_off(self, host: int) -> None:
        at = time.monotonic()
        self._lab.hosts.power_off(host)
        self._until_seen(host, at)

        def power_on() -> None:
            self._lab.hosts.power_on(host)
            self._disks.mount(host)
            self._rejoin(host)

        self._at(self._rng.uniform(0.0, 2 * LEASE_S), power_on)

    def _until_seen(self, host: int, at: float) -> None:
        until(lambda: not self._lab.is_there(host), f"h{host} is away", 6 * SEEN_WITHIN_S)
        self.seen_s.append(time.monotonic() - at)

    def _rejoin(self, host: int) -> None:
        """As the owner of a box does after a restart; it or the head may be cut off for now."""
        if self._lab.hosts.hosts[host].init is None:
            return  # it is without power since, and joins when it is back
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._lab.try_join(host):
                return
        self._at(1.0, lambda: self._rejoin(host))

    def _at(self, delay_s: float, act: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + delay_s, act))
