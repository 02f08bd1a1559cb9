"""When the daemon's supervisor is killed among running jobs: the next one goes on with them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract.executor_harness import (
    FOREVER,
    WITH_HELPER,
    Harness,
    alive,
    kept_executor,
    occupy_for_real,
    put_away,
)
from stoker.executors.contract import (
    Ended,
    ExecutorLostError,
    Held,
    Lost,
    Started,
    Synced,
    Unheld,
)
from stoker.executors.daemon_executor import DaemonExecutor
from stoker.supervisor import exit_recorder, pidfd, process_tree
from stoker.supervisor.adoption import RESTARTED, UNWATCHED
from stoker.supervisor.process_tree import boot_id


@pytest.fixture(params=["recorder", "others", "nobody", "us"])
def reaper(
    request: pytest.FixtureRequest, adopt_orphans: Callable[[bool], None], kept: Harness
) -> str:
    """Which process reaps what a killed supervisor leaves.

    Its recorder; or, if that was killed too, init at once, or this process, or none for now.
    """
    adopt_orphans(request.param != "others")
    if request.param != "recorder":
        kill_recorder(kept)
    return str(request.param)


def kill_recorder(harness: Harness) -> None:
    """Kill the recorder of the supervisor, as one who kills all processes of a user does."""
    assert isinstance(harness.executor, DaemonExecutor)
    (pid,) = harness.executor.pids
    recorder = int(process_tree.stat_fields(pid)[1])
    name = Path(f"/proc/{recorder}/comm").read_bytes().strip()
    assert name == exit_recorder.TITLE
    os.kill(recorder, signal.SIGKILL)
    harness.until_quietly(lambda: int(process_tree.stat_fields(pid)[1]) != recorder)


def kill_supervisor(harness: Harness) -> Synced:
    """Kill it, and see what the next one tells; all reports are of that one."""
    assert isinstance(harness.executor, DaemonExecutor)
    harness.reports.clear()
    (pid,) = harness.executor.pids
    os.kill(pid, signal.SIGKILL)
    synced = harness.synced()
    assert harness.executor.pids != [pid]
    assert synced.fresh
    return synced


def kernel_tells_exits() -> bool:
    """Whether a pidfd tells how its process ended once it was reaped (Linux 6.15)."""
    pid = os.spawnv(os.P_NOWAIT, "/bin/true", ["true"])
    fd = os.pidfd_open(pid)
    try:
        os.waitpid(pid, 0)
        return pidfd.exit_status(fd, pid, 0) == 0
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("words", "status"), [("exit 7", 7 << 8), ("exit 0", 0), ("kill -9 $$", 9), ("kill -15 $$", 15)]
)
def test_jobs_of_a_killed_supervisor_go_on_and_their_ends_are_known(
    kept: Harness, reaper: str, words: str, status: int
) -> None:
    let_go = kept.fifo("fifo")
    kept.sh("1.1", f"read x < fifo; {words}")
    started = kept.started("1.1")
    synced = kill_supervisor(kept)
    assert synced.keys == {"1.1"}
    assert kept.of(Started) == [started]

    let_go()
    if reaper == "others" and not kernel_tells_exits():
        assert kept.lost("1.1").reason == UNWATCHED
    else:
        assert kept.ended("1.1").status == status
    kept.until(lambda: not os.path.exists(f"/proc/{started.pid}"))


def test_an_end_without_a_supervisor_is_lost_unless_its_recorder_or_the_kernel_has_it(
    kept: Harness, reaper: str
) -> None:
    let_go = kept.fifo("fifo")
    kept.sh("1.1", "read x < fifo; exit 7")
    pid = kept.started("1.1").pid
    assert isinstance(kept.executor, DaemonExecutor)
    supervisor = kept.executor.pids[0]
    os.kill(supervisor, signal.SIGKILL)
    kept.until_quietly(lambda: not alive([supervisor]))  # until then the job is its child
    let_go()
    kept.until_quietly(lambda: not alive([pid]))
    if reaper == "us":
        os.waitpid(pid, 0)
    elif reaper != "nobody":
        kept.until_quietly(lambda: not os.path.exists(f"/proc/{pid}"))
    kept.reports.clear()
    kept.synced()

    if reaper in ("nobody", "recorder"):
        assert kept.ended("1.1").status == 7 << 8
    else:
        assert kept.lost("1.1").reason == UNWATCHED
        assert kept.of(Ended) == []
        kept.executor.acknowledge(["1.1"])
        assert kept.reconnect().keys == frozenset()


@pytest.mark.parametrize(
    ("words", "status"),
    [("exit 0", 0), ("kill -TERM $$", 15), ("sleep 600 & exit 3", 3 << 8), ("kill -9 $$", None)],
)
def test_the_recorder_tells_the_next_supervisor_how_jobs_have_ended(
    kept: Harness, words: str, status: int | None
) -> None:
    let_go = kept.fifo("fifo")
    kept.sh("1.1", f"read x < fifo; {words}")
    pid = kept.started("1.1").pid
    assert isinstance(kept.executor, DaemonExecutor)
    supervisor = kept.executor.pids[0]
    os.kill(supervisor, signal.SIGKILL)
    kept.until_quietly(lambda: not alive([supervisor]))
    let_go()
    kept.until_quietly(lambda: not os.path.exists(f"/proc/{pid}"))
    kept.reports.clear()
    kept.synced()

    if status is None:  # the end of a lease may have been the reason
        assert kept.lost("1.1").reason == UNWATCHED
    else:
        ended = kept.ended("1.1")
        assert ended.status == status
        assert ended.leftovers == (("sleep",) if "sleep" in words else ())
    kept.executor.acknowledge(["1.1"])
    assert kept.reconnect().keys == frozenset()


def test_the_next_supervisor_reports_unacknowledged_ends(kept: Harness) -> None:
    kept.sh("1.1", "exit 7")
    kept.sh("2.1", "exit 0", log=kept.work / "missing" / "log")
    kept.sh("3.1", "exit 0")
    ended, refused = kept.ended("1.1"), kept.refused("2.1")
    kept.ended("3.1")
    kept.executor.acknowledge(["3.1"])
    kept.reach()

    assert kill_supervisor(kept).keys == {"1.1", "2.1"}
    assert kept.ended("1.1") == ended
    assert kept.refused("2.1") == refused


def test_a_job_of_a_killed_supervisor_can_be_signalled(kept: Harness) -> None:
    kept.sh("1.1", "trap 'exit 5' USR1; echo ready > ready; while :; do sleep 0.01; done")
    kept.read("ready")
    kill_supervisor(kept)
    kept.executor.signal("1.1", signal.SIGUSR1)

    assert kept.ended("1.1").status in (5 << 8, signal.SIGUSR1)


def test_the_main_process_of_a_killed_supervisors_job_can_be_signalled_alone(kept: Harness) -> None:
    (kept.work / "program.py").write_text(WITH_HELPER)
    kept.sh("1.1", f"exec {sys.executable} program.py")
    kept.read("helper")
    kill_supervisor(kept)
    kept.executor.signal("1.1", signal.SIGUSR2, main_only=True)

    assert int(kept.read("status")) == -signal.SIGKILL
    kept.ended("1.1")


def test_a_tree_of_a_killed_supervisor_is_killed_to_the_last_process(kept: Harness) -> None:
    hydra = kept.hydra("1.1")
    kept.sh("2.1", "env -i sleep 600 & echo $! > hidden; wait", 1)
    hidden = int(kept.read("hidden"))
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        kill_supervisor(kept)
        kept.executor.kill("1.1")
        assert kept.ended("1.1").status == signal.SIGKILL
        kept.until(lambda: not alive(hydra))
        assert alive([hidden])
        kept.executor.kill("2.1")
        kept.until(lambda: not alive([hidden]))
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_leftovers_of_a_killed_supervisors_job_have_five_seconds(kept: Harness) -> None:
    let_go = kept.fifo("fifo")
    deaf = "setsid sh -c 'trap \"\" TERM; echo $$ > {}; sleep 600; :' &"
    kept.sh("1.1", f"{deaf.format('early')} exit 0")  # over before the supervisor is killed
    kept.sh("2.1", f"{deaf.format('late')} read x < fifo", 1)
    early, late = int(kept.read("early")), int(kept.read("late"))
    kill_supervisor(kept)
    let_go()
    began = time.monotonic()
    assert alive([early, late]) == {early, late}

    kept.until(lambda: not alive([early, late]))
    assert time.monotonic() - began > 3


def test_a_gpu_stays_taken_while_a_job_of_a_killed_supervisor_is_on_it(kept: Harness) -> None:
    kept.sh("1.1", FOREVER, 1)
    kept.started("1.1")
    kill_supervisor(kept)
    kept.executor.hold(1)
    kept.until(lambda: kept.of(Unheld))
    assert kept.of(Unheld)[0].reason is None

    kept.executor.kill("1.1")
    kept.ended("1.1")

    def hold_again() -> bool:
        kept.executor.hold(1)
        return bool(kept.of(Held))

    kept.until(hold_again)


def test_supervisors_may_be_killed_again_and_again(kept: Harness) -> None:
    let_go = kept.fifo("fifo")
    kept.sh("1.1", "read x < fifo; exit 3")
    started = kept.started("1.1")
    for _ in range(3):
        assert kill_supervisor(kept).keys == {"1.1"}
        assert kept.of(Started) == [started]
    let_go()

    assert kept.ended("1.1").status == 3 << 8


def test_a_supervisor_that_could_not_start_is_tried_again_at_the_next_poll(kept: Harness) -> None:
    executor = kept.executor
    assert isinstance(executor, DaemonExecutor)
    kept.sh("1.1", FOREVER)
    kept.started("1.1")
    journal = kept.work.parent / "journal"
    os.kill(executor.pids[0], signal.SIGKILL)
    kept.until_quietly(lambda: not alive(executor.pids))
    os.rename(journal, journal.with_suffix(".away"))
    journal.mkdir()
    for _ in range(2):
        with pytest.raises(ExecutorLostError, match="journal: Is a directory"):
            executor.observe()
        executor.hold(0)  # nobody hears
    journal.rmdir()
    os.rename(journal.with_suffix(".away"), journal)
    kept.reports.clear()

    assert kept.synced().keys == {"1.1"}


def test_a_part_of_stoker_is_spared_also_by_a_later_supervisor(kept: Harness) -> None:
    kept.sh("1.1", "(env STOKER_PART=daemon setsid sleep 600 & echo $! > part); sleep 600")
    part = int(kept.read("part"))
    try:
        kill_supervisor(kept)
        kept.executor.kill("1.1")
        kept.ended("1.1")
        kept.executor.stop(kill=True)  # type: ignore[attr-defined]
        assert alive([part])
    finally:
        os.kill(part, signal.SIGKILL)


class TestJournals:
    """Supervisors that begin with a journal somebody else has left."""

    @pytest.fixture
    def stranger(self) -> Iterator[process_tree.Process]:
        """A process that is nobody's job."""
        process = subprocess.Popen(["sleep", "600"], start_new_session=True)
        seen = process_tree.find_process(process.pid)
        assert seen is not None
        yield seen
        assert process.poll() is None, "a stranger was ended"
        process.kill()
        process.wait()

    @contextlib.contextmanager
    def beginning_with(self, work: Path, *lines: str) -> Iterator[Harness]:
        (work.parent / "journal").write_text("".join(f"{line}\n" for line in lines))
        harness = Harness(kept_executor(work), work, occupy_for_real)
        try:
            yield harness
        finally:
            put_away(harness.executor)

    @pytest.mark.parametrize("off_by", [-500, 500])
    def test_a_process_with_a_reused_pid_is_never_signalled(
        self, surroundings: Path, stranger: process_tree.Process, off_by: int
    ) -> None:
        ticks = stranger.ticks + off_by
        with self.beginning_with(
            surroundings,
            f"boot {boot_id()} before .",
            "spawn 1.1 .",
            f"start 1.1 {stranger.pid} {ticks} {ticks} 1700000000000000 .",
        ) as harness:
            assert harness.synced().keys == {"1.1"}
            assert harness.of(Lost) == [Lost("1.1", UNWATCHED)]
            harness.executor.kill("1.1")
            harness.executor.signal("1.1", signal.SIGTERM)

    def test_a_process_with_another_cookie_is_not_adopted(
        self, surroundings: Path, stranger: process_tree.Process
    ) -> None:
        env = {**os.environ, process_tree.COOKIE: "before:2.1"}
        other = subprocess.Popen(["sleep", "600"], start_new_session=True, env=env)
        try:
            seen = process_tree.find_process(other.pid)
            assert seen is not None
            with self.beginning_with(
                surroundings,
                f"boot {boot_id()} before .",
                f"start 1.1 {seen.pid} {seen.ticks} {seen.ticks} 1700000000000000 .",
                f"start 2.1 {seen.pid} {seen.ticks} {seen.ticks} 1700000000000000 .",
            ) as harness:
                assert harness.synced().keys == {"1.1", "2.1"}
                assert harness.of(Lost) == [Lost("1.1", UNWATCHED)]
                harness.executor.kill("2.1")
                other.wait(10)
                harness.first(Ended, "2.1")
        finally:
            other.kill()
            other.wait()

    def test_an_unrecorded_start_is_found_by_its_cookie(self, surroundings: Path) -> None:
        env = {**os.environ, process_tree.COOKIE: "before:1.1"}
        job = subprocess.Popen(
            ["sh", "-c", "sleep 600 & wait; exit 3"], start_new_session=True, env=env
        )
        try:
            with self.beginning_with(
                surroundings, f"boot {boot_id()} before .", "spawn 1.1 .", "spawn 2.1 ."
            ) as harness:
                assert harness.synced().keys == {"1.1", "2.1"}
                assert harness.of(Lost) == [Lost("2.1", UNWATCHED)]
                started = harness.started("1.1")
                assert started.pid == job.pid
                assert abs(started.at_us / 1e6 - time.time()) < 10
                harness.executor.kill("1.1")
                job.wait(10)
                assert harness.ended("1.1").status == signal.SIGKILL
        finally:
            job.kill()
            job.wait()

    def test_after_a_reboot_all_attempts_are_lost_and_no_process_is_signalled(
        self, surroundings: Path, stranger: process_tree.Process
    ) -> None:
        with self.beginning_with(
            surroundings,
            "boot 0f2dd1a4-5f0e-4a3a-9d4b-1c2d3e4f5a6b before .",
            "spawn 1.1 .",
            f"start 1.1 {stranger.pid} {stranger.ticks} {stranger.ticks} 1700000000000000 .",
            "spawn 2.1 .",
            "spawn 3.1 .",
            "end 3.1 0 1700000001500000 2250000 4096 .",
        ) as harness:
            assert harness.synced().keys == {"1.1", "2.1", "3.1"}
            assert harness.of(Lost) == [Lost("1.1", RESTARTED), Lost("2.1", RESTARTED)]
            assert harness.ended("3.1").status == 0

    def test_a_torn_journal_is_continued(self, surroundings: Path) -> None:
        with self.beginning_with(
            surroundings, f"boot {boot_id()} before .", "end 1.1 0 1 2 3 .", "end 2.1 0 17000"
        ) as harness:
            assert harness.synced().keys == {"1.1"}
            harness.hold_all()
            harness.sh("3.1", "exit 0")
            harness.ended("3.1")
            assert harness.reconnect().keys == {"1.1", "3.1"}

    def test_a_journal_locked_by_another_process_is_not_used(
        self, surroundings: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("stoker.executors.daemon_executor._PATIENCE_S", 0.3)
        path = surroundings.parent / "journal"
        with open(path, "w", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with pytest.raises(ExecutorLostError, match="another process has locked"):
                kept_executor(surroundings)
