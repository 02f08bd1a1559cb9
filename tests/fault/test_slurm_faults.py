"""A queue on allocations of Slurm through twenty faults: nothing is lost, doubled or left behind.

Jobs tell what they do themselves, because the record may be wrong.
"""

from __future__ import annotations

import contextlib
import importlib.util
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from cluster.cluster_fixture import until
from cluster.conftest import require_hosts, require_slurm
from cluster.netns_hosts import Hosts
from cluster.slurm_fixture import PilotLab, Slurm
from fault.table import say
from fault.work import read_events
from scale import long_only

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not installed: pip install 'stoker[ray]'",
    ),
    pytest.mark.timeout(3600),
    long_only,
]
LEASE_S = 10.0
KINDS = (
    *("scancel", "kill", "guard", "member", "daemon", "slurmd") * 2,
    *("slurmctld", "slurmctld with its state") * 2,
    *("power off", "cut", "walltime", "head"),
)
JOBS_EACH = 30
SHORTEST_MS, LONGEST_MS = 500, 3000
LEFT_AFTER_S = 10.0


class Inspector(threading.Thread):
    """Looks for processes of allocations that are over for longer than ten seconds."""

    def __init__(self, slurm: Slurm) -> None:
        super().__init__(daemon=True)
        self._slurm = slurm
        self._over_since: dict[str, float] = {}
        self._living: set[str] = set()
        self._homes: dict[str, str] = {}  # the job of a pilot's home
        self.left: set[str] = set()
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.5):
            with contextlib.suppress(AssertionError, OSError):
                self._living = {str(job) for job in self._slurm.jobs()}
                self._look()

    def _look(self) -> None:
        now = time.monotonic()
        for host in self._slurm.nodes:
            for pid, words in self._slurm.hosts.processes(host).items():
                job = self._job_of(host, pid)
                if job is None or job in self._living:
                    continue
                if now - self._over_since.setdefault(job, now) > LEFT_AFTER_S:
                    self.left.add(f"h{host}, Slurm's job {job}: {words[:120]}")

    def _job_of(self, host: int, pid: int) -> str | None:
        """Return the allocation that a process belongs to, by its environment."""
        init = self._slurm.hosts.hosts[host].init
        try:
            with open(f"/proc/{init}/root/proc/{pid}/environ", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
        except OSError:
            return None
        parts = (word.partition("=") for word in words)
        env = {name: value for name, _sign, value in parts}
        home, job = env.get("STOKER_HOME", ""), env.get("SLURM_JOB_ID")
        if "/stoker-node-" in home and job:
            self._homes[home] = job
        return self._homes.get(home, job)


class Harm:
    """Does harm to Slurm, to its nodes and to the head; what was killed is started again."""

    def __init__(self, lab: PilotLab, rng: random.Random) -> None:
        self._lab = lab
        self._slurm = lab.slurm
        self._rng = rng
        self.done: Counter[str] = Counter()

    def strike(self, kind: str) -> None:
        """Do one thing to an allocation that runs jobs."""
        found = until(self._victim, f"an allocation runs jobs, for: {kind}", 180.0)
        assert found is not None
        job, host = found
        say(f"{kind}: Slurm's job {job} on h{host}")
        self.done[kind] += 1
        hosts, run = self._lab.hosts, self._slurm.run
        match kind:
            case "scancel":
                run(0, "scancel", str(job))
            case "kill":
                run(0, "scancel", "--signal=KILL", "--full", str(job))
            case "guard" | "member":
                pids = self._pids(host, f"--name slurm-{job}")
                hosts.kill(host, pids[0 if kind == "guard" else 1])
            case "slurmd":
                self._end(host, "slurmd -N")
                self._slurm.start_node(host)
            case "slurmctld" | "slurmctld with its state":
                self._end_controller(loses_state=kind != "slurmctld")
            case "power off":
                hosts.power_off(host)
                time.sleep(self._rng.uniform(1, 5))
                hosts.power_on(host)
                self._slurm.start_node(host)
            case "cut":
                with self._lab.cut(host, 3 * LEASE_S):
                    pass
            case "walltime":
                run(0, "scontrol", "update", f"jobid={job}", "TimeLimit=2")
            case "daemon":
                self._lab.kill(0, "daemon")
                self._start_daemon()
            case "head":
                self._lab.kill(0, "gcs")
                self._lab.kill(0, "bridge")
                self._lab.kill(0, "daemon")
                self._start_daemon()

    def _victim(self) -> tuple[int, int] | None:
        rows = self._lab.query(
            "SELECT slots FROM job WHERE state = 'running' AND slots LIKE 'slurm-%'"
        )
        nodes = sorted({row[0].partition("/")[0] for row in rows})
        if not nodes:
            return None
        job = int(self._rng.choice(nodes).removeprefix("slurm-"))
        ended = self._lab.hosts.run(
            0, ["squeue", "-h", "-t", "R", "-j", str(job), "-o", "%N"], env=self._slurm.env
        )
        name = ended.stdout.strip()
        if not name:
            return None
        host = int(name.removeprefix("h"))
        return (job, host) if len(self._pids(host, f"--name slurm-{job}")) > 1 else None

    def _pids(self, host: int, words: str) -> list[int]:
        found = self._lab.hosts.processes(host).items()
        return sorted(pid for pid, line in found if words in line)

    def _end(self, host: int, words: str) -> None:
        for pid in self._pids(host, words):
            self._lab.hosts.kill(host, pid)
        until(lambda: not self._pids(host, words), f"{words} has ended on h{host}")

    def _end_controller(self, *, loses_state: bool) -> None:
        state = self._slurm.folder / "state"
        if loses_state:  # what was submitted a moment ago is not in the older state
            for file in state.glob("*_state"):
                older = file.with_name(f"{file.name}.old")
                if older.exists():
                    older.replace(file)
        self._end(0, "slurmctld")
        time.sleep(self._rng.uniform(1, 8))
        self._slurm.start_controller()

    def _start_daemon(self) -> None:
        time.sleep(self._rng.uniform(0, 3))
        ended = self._lab.hosts.run(0, self._lab.stoker("ls"), env=self._slurm.env)
        assert ended.returncode == 0, ended


@pytest.fixture
def lab(nvml_library: str) -> Iterator[PilotLab]:
    """Return a head with a rule for allocations of whole nodes."""
    require_hosts()
    require_slurm()
    with Hosts(hosts=3, library=nvml_library) as hosts:
        slurm = Slurm(hosts)
        slurm.start()
        lab = PilotLab(slurm, LEASE_S)
        rule = ["--time", "1h", "--gpus", "4", "--max", "3", "--idle", "5s"]
        lab.ok("cluster", "alloc", "add", "slurm", *rule)
        yield lab
        say(lab.notices()[-8000:])


def test_faults_of_slurm_lose_nothing_double_nothing_and_leave_nothing(
    lab: PilotLab, job_program: str
) -> None:
    rng = random.Random(24)
    kinds = list(KINDS)
    rng.shuffle(kinds)
    harm, inspector = Harm(lab, rng), Inspector(lab.slurm)
    inspector.start()
    record, lines = lab.path("record"), lab.path("lines")
    for kind in kinds:
        work = [rng.randrange(SHORTEST_MS, LONGEST_MS) for _ in range(JOBS_EACH)]
        lines.write_text("".join(f"{job_program} {record} {ms} 0\n" for ms in work))
        lab.ok("add", "-q", "--share", "never", "--timeout", "60s", "--batch", str(lines))
        harm.strike(kind)
        for rule in lab.allocations():  # a fault that repeats may look like a start that fails
            if rule["paused"]:
                lab.ok("cluster", "alloc", "resume", str(rule["id"]))
    lab.until_over()
    until(lambda: not lab.slurm.jobs(), "all allocations are given back", 300.0)
    until(lambda: not any(lab.left_on(host) for host in lab.slurm.nodes), "nothing is left", 60.0)
    time.sleep(LEFT_AFTER_S)  # so that the inspector would see what is left
    inspector.stopped.set()
    inspector.join()

    events = read_events(record)
    states = Counter(row[0] for row in lab.query("SELECT state FROM job"))
    lost = lab.query("SELECT reason, count(*) FROM earlier_attempt GROUP BY 1")
    say(f"{len(kinds)} faults {dict(harm.done)}; jobs {dict(states)}; attempts lost {lost}")
    assert states == {"done": JOBS_EACH * len(kinds)}
    assert [event for event in events if event.rivals] == []
    assert not inspector.left
