"""Real Slurm over the hosts of a cluster: a controller on h0, and a node with its GPUs on each other host.

All of its files are in the hosts' folder, and all of its processes are in the hosts' namespaces: they end
with them. One munged serves all hosts, because they share the disk.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any, NamedTuple

from cluster.cluster_fixture import Lab, until
from cluster.netns_hosts import Hosts

_TOOLS = ("slurmctld", "slurmd", "sbatch", "munged")
_GPUS = 4
_NVIDIA = 195
_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
_SLURM_CONF = """\
ClusterName=lab
SlurmctldHost=h0({controller})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n/slurmd.log
ProctrackType={proctrack}
TaskPlugin=task/none
TaskProlog={folder}/task_prolog
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
{scheduler}
SlurmctldTimeout=30
SlurmdTimeout=10
KillWait=5
MinJobAge=2
MessageTimeout=20
EnforcePartLimits=ALL
{nodes}
PartitionName=gpu Nodes={names} Default=YES MaxTime=24:00:00 State=UP
PartitionName=short Nodes={names} MaxTime=00:05:00 State=UP
PartitionName=closed Nodes={names} AllowAccounts=others MaxTime=INFINITE State=UP
"""
# What belongs to a host, as a site's own prolog would set it: jobs have the environment of the head.
_TASK_PROLOG = """\
#!/bin/sh
while read -r line; do echo "export $line"; done <{folder}/$(hostname)/environment
"""


@functools.cache
def why_not() -> str | None:
    """Why there can be no Slurm here; None if there can."""
    path = f"{os.environ['PATH']}:{_PATH}"
    for tool in _TOOLS:
        if shutil.which(tool, path=path) is None:
            return (
                f"there is no `{tool}`: apt-get install --no-install-recommends slurmctld slurmd"
                " slurm-client munge slurm-wlm-basic-plugins"
            )
    return None


_QUICK = "batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0"


class Slurm:
    """Slurm over hosts. `proctrack` is how it follows the processes of its jobs.

    It schedules at once unless `quick` is False: then it has Slurm's own defaults, as most sites do.
    """

    def __init__(
        self, hosts: Hosts, proctrack: str = "proctrack/linuxproc", *, quick: bool = True
    ) -> None:
        self.hosts = hosts
        self.folder = hosts.folder / "slurm"
        self.env = {
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PATH": f"{os.environ['PATH']}:{_PATH}",
        }
        self.has_cgroups = proctrack == "proctrack/cgroup"
        self.nodes = range(1, len(hosts.hosts))
        self._write(proctrack, f"SchedulerParameters={_QUICK}" if quick else "")

    def _write(self, proctrack: str, scheduler: str) -> None:
        hosts, folder = self.hosts, self.folder
        names = [hosts.hosts[number].name for number in self.nodes]
        for name in ("state", *names):
            (folder / name / "spool").mkdir(parents=True)
        lines = [
            f"NodeName={hosts.hosts[number].name} NodeAddr={hosts.address(number)} CPUs=8"
            f" RealMemory=4000 Gres=gpu:{_GPUS} State=UNKNOWN"
            for number in self.nodes
        ]
        text = _SLURM_CONF.format(
            controller=hosts.address(0),
            folder=folder,
            proctrack=proctrack,
            scheduler=scheduler,
            nodes="\n".join(lines),
            names=",".join(names),
        )
        (folder / "slurm.conf").write_text(text)
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        gpus = "".join(
            f"NodeName={name} Name=gpu File={folder}/nvidia[0-{_GPUS - 1}]\n" for name in names
        )
        (folder / "gres.conf").write_text(gpus)
        for number in range(_GPUS):
            device = os.makedev(_NVIDIA, number)
            os.mknod(folder / f"nvidia{number}", 0o666 | stat.S_IFCHR, device)
        prolog = folder / "task_prolog"
        prolog.write_text(_TASK_PROLOG.format(folder=folder))
        prolog.chmod(0o755)
        for number, name in zip(self.nodes, names, strict=True):
            env = {k: v for k, v in hosts.hosts[number].env.items() if k != "STOKER_HOME"}
            lines = [f"{key}={value}\n" for key, value in env.items() if key != "PATH"]
            (folder / name / "environment").write_text("".join(lines))

    def start(self) -> None:
        """Start all of Slurm, and wait until its nodes are idle."""
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.run(
            0,
            *("munged", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.sock"),
            *(f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log"),
            f"--seed-file={self.folder}/munged.seed",
        )
        self.start_controller()
        for number in self.nodes:
            self.start_node(number)
        until(lambda: self.idle() == len(self.nodes), "all of Slurm's nodes are idle", 60.0)

    def start_controller(self) -> None:
        """Start the controller, which reads its state."""
        self.run(0, "slurmctld", "-i")

    def start_node(self, number: int) -> None:
        """Start the daemon of a node."""
        self.run(number, "slurmd", "-N", self.hosts.hosts[number].name)

    def run(self, host: int, *words: str) -> str:
        """Return the output of one of Slurm's commands on a host, which must succeed."""
        ended = self.hosts.run(host, words, env=self.env)
        assert ended.returncode == 0, (words, ended)
        return ended.stdout

    def idle(self) -> int:
        """How many nodes are idle."""
        ended = self.hosts.run(0, ["sinfo", "-h", "-N", "-o", "%N %T"], env=self.env)
        return len({line for line in ended.stdout.splitlines() if line.endswith(" idle")})

    def jobs(self) -> dict[int, str]:
        """Slurm's jobs that are not over, and their states."""
        found = {}
        for line in self.run(0, "squeue", "-h", "-o", "%i %T").splitlines():
            number, state = line.split()
            found[int(number.partition("_")[0])] = state  # that of an array counts once
        return found


_FREEZER = Path("/sys/fs/cgroup/freezer")


def has_cgroups() -> bool:
    """Whether Slurm can follow processes by cgroups here, which are those of the machine."""
    return _FREEZER.is_dir() and os.access(_FREEZER, os.W_OK)


def remove_cgroups() -> None:
    """Remove the groups that Slurm leaves behind."""
    for top in _FREEZER.glob("slurm_h[0-9]"):
        for folder, _folders, _files in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


class Pilot(NamedTuple):
    """A pilot: its job in Slurm, its node in the cluster, and the number of its host."""

    job: int
    node: str
    host: int


class PilotLab(Lab):
    """A head on h0 that gets its other nodes from Slurm."""

    def __init__(self, slurm: Slurm, lease_s: float) -> None:
        self.hosts, self.slurm = slurm.hosts, slurm
        self.shared = self.hosts.folder / "shared"
        self.shared.mkdir()
        said = self.ok("cluster", "up")
        found = re.search(r"STOKER_CLUSTER_TOKEN=(\S+) stoker cluster join (\S+)", said)
        assert found is not None, said
        token, self._address = found.groups()
        self._token_file = self.hosts.folder / "token"
        self._token_file.write_text(token)
        self._token_file.chmod(0o600)
        self.ok("config", "cluster.lease", f"{lease_s:g}s")
        self.hosts.run(0, self.stoker("daemon", "restart"), env=slurm.env)
        for gpu in range(_GPUS):  # so that all work goes to Slurm's nodes
            self.ok("gpus", "drain", str(gpu))

    def allocations(self) -> list[dict[str, Any]]:
        """The rules for allocations, as the daemon knows them."""
        found: list[dict[str, Any]] = json.loads(self.ok("cluster", "alloc", "ls", "--json"))
        return found

    def submit_pilot(self, *words: str) -> int:
        """Submit a batch script that is a pilot. Returns its id."""
        joins = ["cluster", "join", self._address, "--foreground"]
        joins += ["--token-file", str(self._token_file), "--name", "by-hand-$SLURM_JOB_ID"]
        script = self.path("pilot.sh")
        script.write_text(f"#!/bin/sh\nexec {' '.join(self.stoker(*joins))}\n")
        more = ["--no-requeue", "--time=10", f"--output={self.shared}/pilot-%j.log", *words]
        return int(self.slurm.run(0, "sbatch", "--parsable", *more, str(script)))

    def until_pilot(self, job: int) -> Pilot:
        """Wait until jobs can start on a pilot that was submitted."""
        node = f"by-hand-{job}"
        until(lambda: f"{node} is there" in self.notices(), f"{node} is there", 120.0)
        host = self.slurm.run(0, "squeue", "-h", "-j", str(job), "-o", "%N").strip()
        return Pilot(job, node, int(host.removeprefix("h")))

    def pids_of(self, pilot: Pilot) -> list[int]:
        """The guard and the member of a pilot."""
        found = self.hosts.processes(pilot.host).items()
        return sorted(pid for pid, words in found if f"--name {pilot.node}" in words)

    def left_on(self, host: int) -> list[str]:
        """The processes of a host that do not belong to Slurm itself."""
        own = ("slurmd ", "slurmstepd", "nsenter")
        return [words for words in self.hosts.processes(host).values() if not words.startswith(own)]
