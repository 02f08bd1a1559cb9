"""`stoker cluster add` over a real sshd: a machine with Python becomes a node, or stays as it was."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker
from cluster.conftest import require_hosts
from cluster.netns_hosts import Hosts
from cluster.ssh_hosts import SshHosts, require_sshd
from patience import until
from scale import long_only
from stoker.cluster.join_tokens import newest_join_token
from stoker.cluster.ssh.box_records import Box, load_boxes, save_box

pytestmark = [pytest.mark.usefixtures("ray"), pytest.mark.timeout(900)]
_LONG_S = 400.0  # a copy of Stoker and Ray, on a machine that has much else to do
BARE = 2


class Lab:
    """h0 is the head. h1 and h2 run sshd, and have no Stoker."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.ssh = SshHosts(hosts)
        hosts.ok(0, "cluster", "up")
        hosts.ok(0, "config", "cluster.lease", "300s")  # not what is tested: Ray may start slowly
        self.ssh.give_systemd(1)
        self.token = newest_join_token(str(hosts.home(0)), 0.0)

    def add(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `stoker cluster add WORDS` on the head."""
        command = [sys.executable, "-m", "stoker", "cluster", "add", *words]
        return self.hosts.run(0, command, timeout_s=_LONG_S)

    def refusal(self, *words: str) -> str:
        """Why a machine is not added: one line; nothing is left there, and no join token here."""
        ended = self.add(*words)
        assert ended.stdout == ""
        self.check_untouched(ended)
        return ended.stderr

    def check_untouched(self, ended: subprocess.CompletedProcess[str]) -> None:
        assert ended.returncode == 1, ended
        assert ended.stderr.count("\n") == 1, ended
        assert not [*self.hosts.home(BARE).glob("*")]
        assert not [line for line in self.hosts.processes(BARE).values() if "stoker" in line]
        assert set(load_boxes(str(self.hosts.home(0)))) <= {"h1"}
        assert newest_join_token(str(self.hosts.home(0)), 0.0) == self.token

    def at_bare(self, script: str) -> None:
        ended = self.hosts.run(BARE, ["sh", "-ec", script])
        assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="module")
def lab(ray: None, nvml_library: str) -> Iterator[Lab]:
    """Return a head, and two machines that it reaches over ssh."""
    require_hosts()
    require_sshd()
    with Hosts(hosts=3, library=nvml_library) as hosts:
        yield Lab(hosts)


def test_a_box_with_python_alone_is_added_over_ssh_and_runs_a_job(lab: Lab) -> None:
    ended = lab.add("root@h1", "--label", "disk=nvme")
    assert ended.returncode == 0, ended
    said = ended.stdout.splitlines()
    assert [line for line in said if line.startswith("root@h1: Stoker ") and "copied" in line]
    assert "root@h1: 4 GPUs: Stoker Fake GPU" in said
    assert f"root@h1: joined the cluster at {lab.hosts.address(0)}:7866 as h1" in said
    (unit,) = (lab.hosts.hosts[1].folder / ".config/systemd/user").iterdir()
    assert f"root@h1: installed and started: {unit}" in said
    assert said[-1].startswith("h1 is usable (")
    token = newest_join_token(str(lab.hosts.home(0)), 0.0)
    assert token == lab.token, "the join token of h1 was not revoked"
    job = lab.hosts.ok(0, "add", "-q", "--node", "h1", "--", "sh", "-c", "hostname").strip()
    assert lab.hosts.stoker(0, "wait", job).returncode == 0
    assert lab.hosts.ok(0, "log", job) == "h1\n"
    again = lab.add("root@h1")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == "stoker: root@h1 is a node of this cluster already: h1\n"


def test_a_box_whose_ports_a_firewall_blocks_is_left_as_it_was_and_a_line_names_the_ports(
    lab: Lab,
) -> None:
    # What another try has left, interrupted after its copy.
    left, home = lab.hosts.home(1) / "software", lab.hosts.home(BARE)
    lab.at_bare(f"mkdir -m 700 {home} && cp -al {left} {home}")
    address = lab.hosts.address(BARE)
    rule = f"to {address} ipproto tcp dport 7868-7883 prohibit"
    assert lab.hosts.run(0, ["ip", "rule", "add", *rule.split()]).returncode == 0
    try:
        ended = lab.add("root@h2")
    finally:
        lab.hosts.run(0, ["ip", "rule", "del", *rule.split()])
    assert f"root@h2: Stoker {stoker.__version__} and Ray" in ended.stdout
    assert "is there already" in ended.stdout
    lab.check_untouched(ended)
    assert f"the head cannot reach this box at {address}:7868" in ended.stderr
    assert "ports 7868-7883" in ended.stderr


def test_a_name_that_another_box_has_is_refused_with_one_line(lab: Lab) -> None:
    said = lab.refusal("root@h2", "--name", "h1")
    assert said == "stoker: --name h1: another box of the cluster has that name\n"


@long_only
def test_an_upgrade_gives_a_node_the_version_of_the_head_and_its_jobs_run_on(
    lab: Lab, tmp_path: Path
) -> None:
    hosts, gate = lab.hosts, lab.hosts.folder / "upgraded"
    os.mkfifo(gate)
    command = ["sh", "-c", f"read line <{gate}; echo $line"]
    job = hosts.ok(0, "add", "-q", "--node", "h1", "--", *command).strip()
    until(lambda: '"running"' in hosts.ok(0, "show", job, "--json"), "the job runs")
    before = load_boxes(str(hosts.home(0)))["h1"].digest
    # Another build of the same version: its files have other times.
    shutil.copytree(
        os.path.dirname(str(stoker.__file__)), tmp_path / "stoker", copy_function=shutil.copy
    )
    upgrade = [sys.executable, "-m", "stoker", "cluster", "upgrade"]
    ended = hosts.run(0, upgrade, env={"PYTHONPATH": str(tmp_path)}, timeout_s=_LONG_S)
    assert ended.returncode == 0, ended
    assert ended.stdout.endswith("now; its jobs have run on\n")
    after = load_boxes(str(hosts.home(0)))["h1"].digest
    software = hosts.home(1) / "software"
    assert before != after == os.readlink(software / "current")
    assert (software / before).exists(), "the supervisor of the job needs it"
    gate.write_text("hello\n")
    assert hosts.stoker(0, "wait", job).returncode == 0
    assert hosts.ok(0, "log", job) == "hello\n"
    attempts = json.loads(hosts.ok(0, "show", job, "--json"))
    assert attempts["attempt"] == 1
    again = hosts.run(0, upgrade, env={"PYTHONPATH": str(tmp_path)})
    assert again.stdout.endswith("already\n")


def put_broken_build(lab: Lab, folder: Path) -> dict[str, str]:
    """Put a build whose Ray does not start on the head and on h1; return the variables that use it there."""
    shutil.copytree(os.path.dirname(str(stoker.__file__)), folder / "stoker")
    launcher = folder / "stoker" / "cluster" / "ray_launcher.py"
    launcher.write_text("raise SystemExit('Error: this build is broken')\n")
    env = {"PYTHONPATH": str(folder)}
    code = "from stoker.cluster.ssh.bundle import collect; print(collect().digest)"
    asked = lab.hosts.run(0, [sys.executable, "-c", code], env=env)
    software = lab.hosts.home(1) / "software"
    # As a copy would make it, but sooner.
    shutil.copytree(
        software / os.readlink(software / "current"),
        software / asked.stdout.strip(),
        symlinks=True,
        copy_function=os.link,
    )
    (copied,) = (software / asked.stdout.strip()).glob("lib/python*/site-packages/stoker/cluster")
    (copied / "ray_launcher.py").unlink()
    shutil.copy(launcher, copied)
    return env


@pytest.mark.parametrize("has_systemd", [True, False], ids=["systemd", "without systemd"])
def test_an_upgrade_that_fails_brings_the_old_version_back_and_its_jobs_run_on(
    lab: Lab, tmp_path: Path, has_systemd: bool
) -> None:
    hosts, gate = lab.hosts, lab.hosts.folder / f"failed-{has_systemd}"
    software = hosts.home(1) / "software"
    before, there = os.readlink(software / "current"), {*software.iterdir()}
    env = put_broken_build(lab, tmp_path)
    os.mkfifo(gate)
    job = hosts.ok(0, "add", "-q", "--node", "h1", "--", "sh", "-c", f"read line <{gate}").strip()
    until(lambda: '"running"' in hosts.ok(0, "show", job, "--json"), "the job runs")
    with contextlib.nullcontext() if has_systemd else lab.ssh.without_systemd(1):
        upgrade = [sys.executable, "-m", "stoker", "cluster", "upgrade", "h1"]
        ended = hosts.run(0, upgrade, env=env, timeout_s=_LONG_S)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("stoker: h1 keeps its version: root@h1: "), ended
    assert "Error: this build is broken" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert (
        load_boxes(str(hosts.home(0)))["h1"].digest == before == os.readlink(software / "current")
    )
    assert software / before in {*software.iterdir()} <= there, "the broken build is still there"
    gate.write_text("go\n")
    another = hosts.ok(0, "add", "-q", "--node", "h1", "--", "true").strip()
    assert hosts.stoker(0, "wait", job, another).returncode == 0
    assert json.loads(hosts.ok(0, "show", job, "--json"))["attempt"] == 1


def test_a_removed_box_ends_its_jobs_first_and_has_nothing_of_stoker_afterwards(lab: Lab) -> None:
    hosts, gate = lab.hosts, lab.hosts.folder / "gate"
    os.mkfifo(gate)
    job = hosts.ok(0, "add", "-q", "--node", "h1", "--", "sh", "-c", f"read line <{gate}").strip()
    until(lambda: '"running"' in hosts.ok(0, "show", job, "--json"), "the job runs")
    command = [sys.executable, "-m", "stoker", "cluster", "remove", "h1"]
    removing = hosts.spawn(0, command)
    assert removing.stderr is not None
    assert removing.stderr.readline().startswith("stoker: 1 job runs on h1: waiting for the end")
    assert "drained" in hosts.ok(0, "cluster", "status")
    gate.write_text("go\n")
    said, _ = removing.communicate(timeout=_LONG_S)
    assert said == "h1 is removed, and Stoker's files on root@h1\n"
    assert removing.returncode == 0
    assert '"done"' in hosts.ok(0, "show", job, "--json")
    assert not hosts.home(1).exists()
    assert not [*(hosts.hosts[1].folder / ".config/systemd/user").iterdir()]
    assert not [line for line in hosts.processes(1).values() if "stoker" in line]
    status = json.loads(hosts.ok(0, "cluster", "status", "--json"))
    assert [node["name"] for node in status["nodes"]] == ["h0"]
    again = hosts.stoker(0, "cluster", "undrain", "h1")
    assert "there is no node 'h1'" in again.stderr, "a box that is added again would be drained"
    refused = hosts.stoker(0, "cluster", "remove", "h1")
    assert "stoker cluster add has not set up h1" in refused.stderr


def test_a_box_that_does_not_answer_is_removed_from_the_records_alone_by_force(lab: Lab) -> None:
    home = str(lab.hosts.home(0))
    save_box(home, "gone", Box(target="root@nowhere.invalid", python="/python", digest="1f"))
    refused = lab.hosts.stoker(0, "cluster", "remove", "gone")
    assert refused.returncode == 1
    assert refused.stderr.endswith(
        "; if the box does not come back: stoker cluster remove gone --force\n"
    )
    assert "gone" in load_boxes(home)
    ended = lab.hosts.stoker(0, "cluster", "remove", "gone", "--force")
    assert ended.returncode == 0, ended
    assert ended.stdout == "gone is removed, but not Stoker's files on root@nowhere.invalid\n"
    assert "gone" not in load_boxes(home)


def test_a_wrong_user_is_refused_with_one_line(lab: Lab) -> None:
    assert "nobody@h2 refuses the login" in lab.refusal("nobody@h2")


def test_a_changed_host_key_is_refused_with_one_line(lab: Lab) -> None:
    known = lab.ssh.client / "known_hosts"
    before = known.read_text()
    other = next(line for line in before.splitlines() if line.startswith("h1,"))
    known.write_text(
        other.replace("h1,", "h2,").replace(lab.hosts.address(1), lab.hosts.address(2))
    )
    try:
        said = lab.refusal("root@h2")
    finally:
        known.write_text(before)
    assert said.startswith("stoker: the host key of root@h2 has changed: ")


def test_a_machine_that_does_not_exist_is_refused_with_one_line(lab: Lab) -> None:
    assert "there is no machine of that name" in lab.refusal("root@nowhere.invalid")


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (None, "root@h2 has no Python: install Python "),
        ("3.8", "Python 3.8 on root@h2 is too old: install Python "),
        ("3.99", "root@h2 has Python 3.99, and Ray works only between boxes with the same version"),
    ],
)
def test_a_box_without_a_python_of_this_version_is_refused_with_one_line(
    lab: Lab, version: str | None, said: str
) -> None:
    python = lab.ssh.python(BARE)
    path = os.readlink(python)
    python.unlink()
    if version is not None:  # what such an interpreter answers: this machine may have none
        python.write_text(f"#!/bin/sh\necho 'stoker-python {version} /usr/bin/python3'\n")
        python.chmod(0o755)
    lab.at_bare("mount -t tmpfs tmpfs /usr/local/bin")
    try:
        assert said in lab.refusal("root@h2")
    finally:
        lab.at_bare("umount /usr/local/bin")
        python.unlink(missing_ok=True)
        python.symlink_to(path)


def test_a_box_without_space_is_refused_with_one_line(lab: Lab) -> None:
    home = lab.hosts.home(BARE)
    lab.at_bare(f"mkdir -m 700 {home} && mount -t tmpfs -o size=100m,mode=700 tmpfs {home}")
    try:
        said = lab.refusal("root@h2")
    finally:
        lab.at_bare(f"umount {home} && rmdir {home}")
    assert "stoker: no space on root@h2: " in said


def test_a_node_of_another_cluster_is_refused_with_one_line_also_through_a_jump_host(
    lab: Lab,
) -> None:
    (lab.ssh.client / "config").write_text(
        "Host far\n HostName h2\n User root\n ProxyJump root@h1\n"
    )
    folder = lab.hosts.home(BARE) / "cluster"
    folder.mkdir(mode=0o700, parents=True)
    settings = {"role": "node", "address": "10.9.9.9", "port": 7866, "own_address": "10.9.9.8"}
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "node.json").write_text('{"id": "00", "name": "other"}')
    os.chmod(folder.parent, 0o700)
    ended = lab.add("far")
    assert ended.returncode == 1
    assert ended.stderr.startswith(
        "stoker: far belongs to the cluster at 10.9.9.9:7866, as other: "
    )
    lab.at_bare(f"rm -r {folder.parent}")


def test_a_box_with_a_queue_of_its_own_is_refused_with_one_line(lab: Lab) -> None:
    lab.hosts.ok(BARE, "daemon", "start")
    try:
        ended = lab.add("root@h2")
    finally:
        lab.hosts.ok(BARE, "daemon", "stop")
        lab.at_bare(f"rm -r {lab.hosts.home(BARE)}")
    assert ended.returncode == 1
    assert "another Stoker runs on root@h2 with a queue of its own" in ended.stderr
