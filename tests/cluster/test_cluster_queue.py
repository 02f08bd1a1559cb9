"""One queue over three boxes: what is asked for happens everywhere, whatever dies meanwhile.

What jobs did is told by themselves, in a file that all boxes see: the record may be wrong.
"""

from __future__ import annotations

import importlib.util
import os
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from cluster.cluster_fixture import Lab, until
from cluster.netns_hosts import Hosts
from fault.work import Event, build_job, read_events
from scale import long_only

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not installed: pip install 'stoker[ray]'",
    ),
    pytest.mark.timeout(300),
]
LEASE_S = 10.0


@pytest.fixture(scope="module")
def started(hosts: Hosts) -> Lab:
    return Lab(hosts, LEASE_S)


@pytest.fixture
def lab(started: Lab) -> Lab:
    """All three boxes, with nothing to do; what a test before has ended has been started again."""
    if started.pid(0, "daemon") is None:
        started.ok("daemon", "start")
    for host in (1, 2):
        started.until_there(host)
    return started


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_job(tmp_path_factory.mktemp("job"))


class Work:
    """Jobs that tell what they do."""

    def __init__(self, lab: Lab, program: str, name: str) -> None:
        self.lab = lab
        self._program = program
        self.record = lab.path(name)
        self.go = lab.path(f"{name}.go")

    def line(self, ms: int = 0, code: int = 0) -> str:
        return f"{self._program} {self.record} {ms} {code}"

    def add_waiting(self, code: int, *words: str, first: str = "echo began") -> int:
        """Add a job that ends with a code once it is let go, and wait until it runs."""
        wait = f"until [ -e {self.go} ]; do sleep 0.05; done"
        job = self.lab.add(f"{self.line()}; {first}; {wait}; echo over; exit {code}", *words)
        until(lambda: self.lab.of(job)[-1].state == "running", f"job {job} runs", 20)
        until(lambda: self.ends(job), f"job {job} has told of itself")
        return job

    def let_go(self) -> None:
        self.go.touch()

    def events(self) -> list[Event]:
        return read_events(self.record)

    def jobs(self) -> set[int]:
        return {int(event.key.partition(".")[0]) for event in self.events()}

    def starts(self, job: int) -> list[Event]:
        return [e for e in self.events() if e.what == "start" and e.key.startswith(f"{job}.")]

    def ends(self, job: int) -> list[Event]:
        return [e for e in self.events() if e.what == "end" and e.key.startswith(f"{job}.")]


@pytest.fixture
def work(lab: Lab, program: str, request: pytest.FixtureRequest) -> Work:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return Work(lab, program, name)


def test_a_sweep_spreads_over_all_boxes(lab: Lab, work: Work) -> None:
    lab.ok("sweep", "--share", "never", f"{work.line(200)} # {{x}}", "x=range(24)")
    lab.until_over()

    starts = [event for event in work.events() if event.what == "start"]
    assert len({event.key for event in starts}) == len(starts) == 24
    assert set(Counter(event.host for event in starts)) == {"h0", "h1", "h2"}
    assert not any(event.seat or event.rivals for event in starts)
    assert {row.state for row in lab.rows() if row.job in work.jobs()} == {"done"}


def test_the_log_of_a_remote_run_streams(lab: Lab, work: Work) -> None:
    job = work.add_waiting(0, "--node", "h1")
    with lab.hosts.spawn(0, lab.stoker("log", "-f", str(job))) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "began\n"
        work.let_go()
        assert follower.stdout.read() == "over\n"
    assert lab.ok("log", str(job)) == "began\nover\n"


def test_a_remote_log_is_complete_when_its_end_is_reported(lab: Lab) -> None:
    made = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 8000)"
    job = int(lab.ok("add", "-q", "--node", "h2", "--", *lab.python(made)))
    lab.ok("wait", str(job))
    assert lab.log(job).read_bytes() == bytes(range(256)) * 8000


def test_a_remote_run_has_the_folders_and_the_path_of_its_box(lab: Lab) -> None:
    job = lab.add("echo $HOME $TMPDIR $STOKER_HOME", "--node", "h1")
    lab.until_state(job, "done")
    folder, home = lab.hosts.hosts[1].folder, lab.hosts.home(1)
    assert lab.log(job).read_text() == f"{folder} {folder} {home}\n"


def test_a_remote_run_is_killed(lab: Lab, work: Work) -> None:
    job = work.add_waiting(0, "--node", "h2")
    lab.ok("kill", str(job))
    lab.until_state(job, "killed")
    assert not lab.hosts.run(2, ["pgrep", "-f", str(work.go)]).stdout


def test_a_time_limit_counts_from_the_start_however_long_either_box_has_been_up(lab: Lab) -> None:
    jobs = [lab.add("sleep 100", "--node", node, "-t", "1s") for node in ("h0", "h1", "h2")]
    long = lab.add("sleep 1.5", "--node", "h1", "-t", "1m")
    for job in jobs:
        lab.until_state(job, "killed")
        took_us = lab.query(f"SELECT ended_at_us - started_at_us FROM job WHERE id = {job}")[0][0]
        assert took_us >= 900_000
    lab.until_state(long, "done")


def test_a_remote_run_that_ended_while_the_daemon_was_dead_has_its_true_exit_status(
    lab: Lab, work: Work
) -> None:
    job = work.add_waiting(7, "--node", "h1")
    over = lab.path("over")
    other = lab.add(f"until [ -e {over} ]; do sleep 0.05; done; exit 8", "--node", "h2")
    lab.until_state(other, "running")
    assert lab.kill(0, "daemon")
    work.let_go()
    until(lambda: str(work.go) not in str(lab.hosts.processes(1)), "the job has ended")

    lab.ok("status")
    lab.until_state(job, "failed")
    assert [(row.number, row.status) for row in lab.of(job)] == [(1, 7 << 8)]
    assert lab.state(other) == "running"
    over.touch()
    lab.until_state(other, "failed")
    assert [(row.number, row.status) for row in lab.of(other)] == [(1, 8 << 8)]


@pytest.mark.parametrize(
    ("host", "part"),
    [
        (1, "supervisor"),
        (1, "agent"),
        (0, "bridge"),
        pytest.param(1, "raylet", marks=long_only),
        pytest.param(1, "ray_supervisor", marks=long_only),
        pytest.param(0, "supervisor", marks=long_only),
    ],
)
def test_a_run_survives_the_death_of_stokers_processes(
    lab: Lab, work: Work, host: int, part: str
) -> None:
    job = work.add_waiting(5, "--node", "h1")
    mark = lab.mark()
    assert lab.kill(host, part)
    if (host, part) == (1, "ray_supervisor"):
        lab.join(1)
    if part != "supervisor" or host:
        lab.until_told(mark, "h1 is away")
        lab.until_told(mark, "h1 is there", 60)
    work.let_go()
    lab.until_state(job, "failed", 30)

    rows = lab.of(job)
    if len(rows) == 1:  # its lease did not run out meanwhile
        assert rows[0].status == 5 << 8
        assert lab.log(job).read_text() == "began\nover\n"
        assert len(work.starts(job)) == 1
    else:
        assert part in ("raylet", "ray_supervisor"), rows
        assert [row.state for row in rows] == ["lost", "failed"]
        assert not any(event.rivals for event in work.starts(job))


def test_runs_of_a_box_without_power_run_elsewhere_once_their_lease_has_expired(
    lab: Lab, work: Work, off: Work
) -> None:
    lines = lab.path("lines")
    lines.write_text(f"{work.line(3000)}\n" * 12)
    lab.ok("add", "-q", "--share", "never", "--batch", str(lines))
    until(
        lambda: {e.host for e in work.events() if e.what == "start"} == {"h0", "h1", "h2"},
        "all boxes are at work",
        20,
    )
    mark = lab.mark()
    lab.hosts.power_off(2)
    lab.until_told(mark, "h2 is away", 10)
    lab.until_over()

    verdict = Counter(row.state for row in lab.rows() if row.job in work.jobs())
    assert verdict["done"] == 12
    assert set(verdict) == {"done", "lost"}
    lost = [row for row in lab.rows() if row.state == "lost"]
    assert lost
    assert all("cut off" in (row.reason or "") for row in lost)
    events = work.events()
    assert not any(event.seat or event.rivals for event in events)
    ended = Counter(event.key.partition(".")[0] for event in events if event.what == "end")
    assert len(ended) == 12


@pytest.fixture
def off(lab: Lab, work: Work) -> Iterator[Work]:
    """A box that was without power has it again afterwards, and is back."""
    yield work
    mark = lab.mark()
    if lab.hosts.hosts[2].init is None:
        lab.hosts.power_on(2)
        lab.join(2)
        lab.until_told(mark, "h2 is there", 60)


@pytest.fixture
def full(lab: Lab) -> Iterator[str]:
    """Return a folder of h1 on which everything of the queue is, and which is full."""
    folder = str(lab.hosts.home(1) / "cluster" / "queues")
    lab.hosts.ok(1, "cluster", "leave")
    lab.hosts.run(1, ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder])
    mark = lab.mark()
    lab.join(1)
    lab.until_told(mark, "h1 is there", 60)
    fill = 'for size in 1024 1; do head -c 1M /dev/zero | dd of="$0/fill$size" bs=$size; done'
    lab.hosts.run(1, ["sh", "-c", fill, folder])
    yield folder
    lab.hosts.power_off(1)
    lab.hosts.power_on(1)
    mark = lab.mark()
    lab.join(1)
    lab.until_told(mark, "h1 is there", 60)


def test_a_node_with_a_full_disk_gets_no_jobs_until_there_is_space(lab: Lab, full: str) -> None:
    mark = lab.mark()
    anywhere = lab.add("true", "--node", "h1,h2")
    there = lab.add("true", "--node", "h1")
    lab.until_state(anywhere, "done")
    assert (lab.of(anywhere)[-1].slots or "").startswith("h2/")
    lab.until_told(mark, "h1 gets no jobs for now")
    assert "No space left on device" in lab.ok("why", str(there))
    assert lab.state(there) == "waiting"
    assert lab.notices()[mark:].count("h1") == 1
    lab.hosts.run(1, ["sh", "-c", 'rm "$0"/fill*', full])
    lab.until_state(there, "done", 60)


@long_only
@pytest.mark.parametrize("part", ["gcs", "raylet", "ray_supervisor"])
def test_the_end_of_ray_on_the_first_box_loses_and_repeats_no_run(
    lab: Lab, work: Work, part: str
) -> None:
    job = work.add_waiting(5, "--node", "h1")
    mark = lab.mark()
    assert lab.kill(0, part)
    lab.until_told(mark, "h1 is away", 60)
    lab.until_told(mark, "h1 is there", 150)
    lab.until_state(job, "running", 30)
    work.let_go()
    lab.until_state(job, "failed", 60)
    *lost, last = lab.of(job)
    assert last.status == 5 << 8
    assert {row.state for row in lost} <= {"lost"}  # where its lease was out by then
    log = (lab.hosts.home(1) / "cluster" / "ray_supervisor.log").read_text()
    assert "Ray has ended (Ray on the head has begun anew)" in log
    assert not any(event.rivals for event in work.starts(job))


@pytest.mark.parametrize("pause_s", [4, pytest.param(40, marks=long_only)])
def test_a_cut_cable_is_noticed_and_no_run_runs_twice(lab: Lab, work: Work, pause_s: int) -> None:
    job = work.add_waiting(5, "--node", "h1")
    mark = lab.mark()
    with lab.cut(1, pause_s):
        lab.until_told(mark, "h1 is away", 10)
        if pause_s > 2 * LEASE_S:
            lab.until_state(job, "waiting", 30)
            until(lambda: str(work.go) not in str(lab.hosts.processes(1)), "its tree is gone")
    lab.until_told(mark, "h1 is there", 90)
    lab.until_state(job, "running", 30)
    work.let_go()
    lab.until_state(job, "failed", 30)
    assert lab.of(job)[-1].status == 5 << 8
    assert len(lab.of(job)) == (1 if pause_s < LEASE_S else 2)
    assert not any(event.rivals for event in work.starts(job))


def test_work_that_a_cut_off_box_has_finished_is_not_done_again(lab: Lab, program: str) -> None:
    """One job ends within the lease, with results of --sync; one may finish, and ends after the lease."""
    short, long = Work(lab, program, "cut-short"), Work(lab, program, "cut-long")
    code = lab.path("finished")
    code.mkdir()
    wait = f"until [ -e {short.go} ]; do sleep 0.05; done"
    (code / "train.sh").write_text(f"{short.line()}; {wait}; mkdir results; echo 1 > results/x")
    ends = lab.add("sh train.sh", "-C", str(code), "--sync", "--node", "h1")
    until(lambda: short.ends(ends), "it has begun")
    goes_on = long.add_waiting(5, "--node", "h1", "--on-cut", "finish")
    mark = lab.mark()
    with lab.cut(1, 0):
        short.let_go()
        lab.until_told(mark, "h1 is away", 10)
        lab.until_state(ends, "waiting", 30)
        assert "attempt 1 may still run on h1" in lab.ok("why", str(ends))
        assert "runs to its end there" in lab.ok("why", str(goes_on))
        long.let_go()
        until(lambda: str(long.go) not in str(lab.hosts.processes(1)), "it has ended")
        assert lab.state(goes_on) == "running"
    lab.until_state(ends, "done", 90)
    lab.until_state(goes_on, "failed", 30)
    assert [len(short.starts(ends)), len(long.starts(goes_on))] == [1, 1]
    assert [row.number for row in lab.of(ends)] == [1]
    assert [(row.number, row.status) for row in lab.of(goes_on)] == [(1, 5 << 8)]
    assert (code / "results" / "x").read_text() == "1\n"
    assert lab.log(goes_on).read_text() == "began\nover\n"
    assert "may still run" not in lab.ok("why", str(ends))


def test_runs_of_a_box_that_leaves_run_elsewhere_and_it_gets_runs_when_it_is_back(
    lab: Lab, work: Work
) -> None:
    step = "$STOKER_CHECKPOINT_DIR/step"
    first = f"cat {step}; mkdir -p {step}s; echo $STOKER_ATTEMPT >> {step}; cp {step} {step}s/last"
    job = work.add_waiting(0, "--node", "h1,h2", first=first)
    host = int((lab.of(job)[-1].slots or "")[1])
    mark = lab.mark()
    assert "left the cluster" in lab.hosts.ok(host, "cluster", "leave")
    until(lambda: len(work.starts(job)) > 1, "it has begun elsewhere", 30)
    work.let_go()
    lab.until_state(job, "done")
    assert [(row.state, (row.slots or "")[:2]) for row in lab.of(job)] == [
        ("lost", f"h{host}"),
        ("done", f"h{3 - host}"),
    ]
    assert not any(event.rivals for event in work.starts(job))
    assert lab.log(job).read_text() == "1\nover\n"  # the checkpoints of the first attempt
    kept = lab.hosts.home(0) / "checkpoints" / "0" / str(job)
    assert (kept / "steps" / "last").read_text() == "1\n2\n"
    for other in (1, 2):
        assert not [*lab.hosts.home(other).glob(f"cluster/queues/*/checkpoints/0/{job}/*")]

    lab.until_told(mark, f"h{host} has left the cluster")
    lab.join(host)
    lab.until_there(host)
    work.go.unlink()
    jobs = [work.add_waiting(0, "--node", f"h{host}", "--share", "never") for _ in range(4)]
    work.let_go()
    for job in jobs:
        lab.until_state(job, "done")
    assert {lab.of(job)[-1].slots for job in jobs} == {f"h{host}/{gpu}" for gpu in range(4)}


@long_only
def test_a_run_without_its_supervisor_on_a_box_that_is_cut_off_ends_with_its_lease(
    lab: Lab, work: Work
) -> None:
    job = work.add_waiting(5, "--node", "h1")
    mark = lab.mark()
    with lab.cut(1, 20):
        assert lab.kill(1, "supervisor")
        lab.until_state(job, "waiting", 30)
        assert str(work.go) not in str(lab.hosts.processes(1))
    lab.until_told(mark, "h1 is there", 90)
    work.let_go()
    lab.until_state(job, "failed", 60)
    assert not any(event.rivals for event in work.starts(job))


def test_stopping_with_kill_ends_remote_runs_too(lab: Lab, work: Work) -> None:
    job = work.add_waiting(0, "--node", "h1")
    lab.ok("daemon", "stop", "--kill")
    until(lambda: str(work.go) not in str(lab.hosts.processes(1)), "its tree is gone")
    (row,) = lab.of(job)
    assert (row.state, row.status) == ("killed", signal.SIGKILL)


@pytest.fixture
def twin(lab: Lab) -> Iterator[str]:
    """Return the address of h2, which has the id of h1, as if it were made from a copy of its disk."""
    kept, copied = (lab.hosts.home(host) / "cluster" / "node.json" for host in (2, 1))
    own = kept.read_bytes()
    assert lab.kill(2, "ray_supervisor")
    until(lambda: lab.pid(2, "raylet") is None, "Ray has ended on h2", 30)
    kept.write_bytes(copied.read_bytes())
    yield lab.hosts.address(2)
    # A twin that leaves waits in vain for the first box to know of it: without power it is gone at once.
    lab.hosts.power_off(2)
    kept.write_bytes(own)
    lab.hosts.power_on(2)
    mark = lab.mark()
    lab.join(2)
    lab.until_told(mark, "h2 is there", 60)


def test_a_box_with_the_id_of_another_takes_over_none_of_its_runs(
    lab: Lab, work: Work, twin: str
) -> None:
    job = work.add_waiting(5, "--node", "h1")
    mark = lab.mark()
    lab.join(2)
    lab.until_told(mark, f"the box at {twin} has the id of h1", 60)
    assert lab.kill(0, "daemon")
    lab.ok("status")
    lab.until_there(1)
    work.let_go()
    lab.until_state(job, "failed")
    assert [(row.number, row.status) for row in lab.of(job)] == [(1, 5 << 8)]
    assert len(work.starts(job)) == 1


def test_results_of_a_remote_run_are_there_at_its_end_and_nothing_else_stays(lab: Lab) -> None:
    code = lab.path("shipped")
    code.mkdir()
    (code / "train.sh").write_text("mkdir results; echo 0.9 > results/accuracy; pwd")
    job = lab.add("sh train.sh", "-C", str(code), "--sync", "--node", "h1")
    lab.until_state(job, "done")
    assert (code / "results" / "accuracy").read_text() == "0.9\n"
    copy = lab.log(job).read_text().strip()
    assert str(lab.hosts.home(1)) in copy
    assert not os.path.exists(copy)
    transfers = lab.hosts.home(0) / "cluster" / "transfers"
    until(lambda: not [*transfers.glob("*/*")], "no note is left of it")
