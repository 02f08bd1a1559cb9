"""The test hosts itself: what is said of hosts by tests that stand on it must be so."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

from cluster.conftest import require_hosts
from cluster.netns_hosts import Hosts
from patience import until


def said(hosts: Hosts, host: int, *argv: str) -> str:
    ended = hosts.run(host, argv)
    assert ended.returncode == 0, ended
    return ended.stdout.strip()


def reaches(hosts: Hosts, host: int, other: int) -> bool:
    code = (
        "import socket, sys\n"
        "with socket.socket() as s:\n"
        "    s.settimeout(1)\n"
        "    try: s.connect((sys.argv[1], 9))\n"
        "    except ConnectionRefusedError: pass\n"  # somebody is there to refuse
        "    except OSError: sys.exit(1)\n"
    )
    argv = [sys.executable, "-S", "-c", code, hosts.address(other)]
    return hosts.run(host, argv).returncode == 0


def test_hosts_differ_in_all_that_tells_hosts_apart(hosts: Hosts) -> None:
    for question in (
        ["hostname"],
        ["cat", "/etc/machine-id"],
        ["cat", "/proc/sys/kernel/random/boot_id"],
        ["sh", "-c", "echo $STOKER_HOME"],
        ["sh", "-c", "echo $STOKER_LEASE_DIR"],
    ):
        assert len({said(hosts, host, *question) for host in range(3)}) == 3, question
    assert said(hosts, 1, "uname", "-n") == "h1"
    up_s = [float(said(hosts, host, "cat", "/proc/uptime").split()[0]) for host in range(3)]
    assert up_s[1] - up_s[0] > 80_000
    assert up_s[2] - up_s[1] > 80_000


def test_each_host_sees_fake_gpus_of_its_own(hosts: Hosts) -> None:
    code = "from stoker.gpus.drivers import open_driver; print(*(gpu.uuid for gpu in open_driver().gpus()))"
    seen = [said(hosts, host, sys.executable, "-c", code).split() for host in range(3)]
    assert [len(uuids) for uuids in seen] == [4, 4, 4]
    assert len({uuid for uuids in seen for uuid in uuids}) == 12


def test_hosts_reach_each_other_until_a_cable_is_cut(hosts: Hosts) -> None:
    assert reaches(hosts, 0, 1)
    hosts.cut(1)
    assert not reaches(hosts, 0, 1)
    assert not reaches(hosts, 1, 0)
    assert reaches(hosts, 0, 2)
    hosts.mend(1)
    until(lambda: reaches(hosts, 0, 1), "the cable works again")


def test_a_host_without_power_has_no_processes_and_boots_anew(hosts: Hosts) -> None:
    before = said(hosts, 2, "cat", "/proc/sys/kernel/random/boot_id")
    said(hosts, 2, "sh", "-c", "echo kept >disk; setsid sleep 1000 >/dev/null 2>&1 &")
    until(lambda: "sleep 1000" in hosts.processes(2).values(), "it sleeps")
    hosts.power_off(2)
    assert hosts.processes(2) == {}
    hosts.power_on(2)
    assert hosts.processes(2) == {}
    assert said(hosts, 2, "cat", "disk") == "kept"
    assert said(hosts, 2, "cat", "/proc/sys/kernel/random/boot_id") != before
    until(lambda: reaches(hosts, 0, 2), "the cable works again")


def test_orphans_that_end_are_reaped(hosts: Hosts) -> None:
    orphan = "sleep 0.1 & echo $! >orphan"
    said(hosts, 0, "sh", "-c", f"setsid sh -c '{orphan}' >/dev/null 2>&1")
    pid = said(hosts, 0, "cat", "orphan")
    until(lambda: hosts.run(0, ["test", "-e", f"/proc/{pid}"]).returncode != 0, "reaped")


def is_alive(pid: str) -> bool:
    """Whether a process runs; one that waits to be reaped by whoever has inherited it does not."""
    try:
        stat = pathlib.Path("/proc", pid, "stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def test_hosts_leave_nothing_even_if_their_test_is_killed(nvml_library: str) -> None:
    require_hosts()
    code = (
        "from cluster.netns_hosts import Hosts\n"
        f"with Hosts(hosts=1, library={nvml_library!r}) as hosts:\n"
        "    hosts.spawn(0, ['sleep', '1000'])\n"
        "    print(hosts.folder, hosts.hosts[0].init, flush=True)\n"
        "    input()\n"
    )
    test = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))},
    )
    with test:
        assert test.stdout is not None
        folder, init = test.stdout.readline().split()
        test.kill()
        until(lambda: not is_alive(init), "the host is gone")
    subprocess.run(["rm", "-r", folder], check=True)
