"""The daemon's supervisor as a process: who may speak with it, when it goes, and what it needs."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from contract.executor_harness import (
    FOREVER,
    SLOTS,
    Harness,
    alive,
    end_all,
    kept_executor,
    name_of,
    occupy_for_real,
)
from stoker.core.slot import Slot
from stoker.executors.contract import Ended, ExecutorLostError, Finished, Launch, Started, Synced
from stoker.executors.daemon_executor import DaemonExecutor, stop_supervisor
from stoker.supervisor import process_tree
from stoker.supervisor.launcher import start_daemon_supervisor


def supervisor_of(harness: Harness) -> int:
    assert isinstance(harness.executor, DaemonExecutor)
    (pid,) = harness.executor.pids
    return pid


def test_only_the_owner_can_use_socket_and_journal(kept: Harness, path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    assert (path.parent / "journal").stat().st_mode & 0o777 == 0o600


def test_a_socket_at_a_long_path_works(surroundings: Path) -> None:
    folder = surroundings.parent / ("x" * 120)
    folder.mkdir()
    executor = DaemonExecutor(
        name=name_of(surroundings), socket=str(folder / "s"), journal=str(folder / "journal")
    )
    try:
        assert executor.observe() == [Synced(frozenset(), fresh=True)]
    finally:
        executor.stop(kill=True)
        executor.close()


def test_an_idle_supervisor_ends_with_its_client(kept: Harness, path: Path) -> None:
    pid = supervisor_of(kept)
    kept.sh("1.1", "exit 7")
    ended = kept.ended("1.1")
    kept.executor.close()
    kept.until_quietly(lambda: not alive([pid]))
    assert not path.exists()

    kept.reports.clear()
    kept.executor = kept_executor(kept.work)
    assert kept.synced().keys == {"1.1"}
    assert kept.ended("1.1") == ended


def test_a_supervisor_ends_only_after_the_last_leftover(kept: Harness) -> None:
    pid = supervisor_of(kept)
    let_go = kept.fifo("fifo")
    kept.sh("1.1", "setsid sh -c 'trap \"\" TERM; echo $$ > left; read x < fifo' & exit 0")
    kept.read("left")
    kept.until(lambda: not alive([kept.started("1.1").pid]))
    kept.executor.stop(kill=False)  # type: ignore[attr-defined]
    assert alive([pid])
    kept.executor.close()
    assert alive([pid])
    let_go()
    kept.until_quietly(lambda: not alive([pid]))
    kept.executor = kept_executor(kept.work)


def test_a_supervisor_does_not_stop_while_something_runs(kept: Harness, path: Path) -> None:
    pid = supervisor_of(kept)
    kept.sh("1.1", FOREVER)
    kept.started("1.1")
    kept.executor.stop(kill=False)  # type: ignore[attr-defined]
    assert alive([pid])
    kept.reach()
    kept.executor.close()
    assert not stop_supervisor(str(path), kill=False)
    assert alive([pid])

    assert stop_supervisor(str(path), kill=True)
    assert not alive([pid])
    assert stop_supervisor(str(path), kill=True) is None
    kept.executor = kept_executor(kept.work)
    assert kept.ended("1.1").status == signal.SIGKILL


def test_a_stop_with_kill_ends_everything_and_reports_it(kept: Harness) -> None:
    executor = kept.executor
    assert isinstance(executor, DaemonExecutor)
    hydra = kept.hydra()
    kept.sh("2.1", FOREVER)
    reports = executor.stop(kill=True)

    assert not alive(hydra)
    assert [report.key for report in reports if isinstance(report, Ended)] == ["1.1"]
    assert not any(isinstance(report, Started) and report.key == "2.1" for report in reports)
    assert executor.observe() == []
    executor.launch([Launch("3.1", (0,), ["/bin/true"])])
    assert executor.stop(kill=True) == []
    assert not alive(executor.pids)


def test_a_second_supervisor_does_not_disturb_the_first(kept: Harness, surroundings: Path) -> None:
    folder = surroundings.parent
    supervisor = start_daemon_supervisor(
        str(folder / "supervisor.sock"), str(folder / "journal"), "second"
    )
    with os.fdopen(supervisor.fd, "rb") as file:
        assert file.read() == b"busy"
    os.waitpid(supervisor.pid, 0)
    kept.sh("1.1", "exit 0")

    assert kept.ended("1.1").status == 0


def test_a_supervisor_holds_no_folder_terminal_or_output(
    kept: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its own session and folder, and nothing of a job that may have started the daemon."""
    pid = supervisor_of(kept)
    process = process_tree.processes()[pid]
    assert (process.group, process.session) == (pid, pid)
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    assert process_tree.read_marks(pid)[:2] == ([], True)
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        ignored = int(file.read().partition("SigIgn:")[2].split()[0], 16)
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        assert ignored & 1 << (signum - 1)


def test_a_daemon_started_by_a_job_passes_nothing_of_the_job_on(
    surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in (process_tree.COOKIE, "STOKER_JOB_ID", "STOKER_ATTEMPT"):
        monkeypatch.setenv(variable, "outer:1.1")
    lease_fd = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(lease_fd, True)
    executor = kept_executor(surroundings)
    try:
        with open(f"/proc/{executor.pids[0]}/environ", "rb") as file:
            assert b"outer:1.1" not in file.read()
        fds = os.listdir(f"/proc/{executor.pids[0]}/fd")
        targets = [os.readlink(f"/proc/{executor.pids[0]}/fd/{fd}") for fd in fds]
        assert targets.count("/dev/null") == 1
    finally:
        os.close(lease_fd)
        executor.stop(kill=True)
        executor.close()
        end_all(name_of(surroundings))


def test_few_descriptors_are_enough_for_many_logs(surroundings: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        harness = Harness(kept_executor(surroundings), surroundings, occupy_for_real)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        harness.hold_all()
        keys = [f"{number}.1" for number in range(300)]
        harness.executor.launch(
            [Launch(key, (), ["/bin/sleep", "600"], str(harness.work / key)) for key in keys]
        )
        harness.until(lambda: len(harness.of(Started)) == len(keys), within_s=30)
        harness.reports.clear()
        os.kill(supervisor_of(harness), signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        try:
            assert harness.synced().keys == set(keys)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for key in keys[-3:]:
            os.kill(harness.started(key).pid, signal.SIGTERM)
        harness.until(lambda: {report.key for report in harness.of(Ended)} >= set(keys[-3:]))
        harness.sh("400.1", "exit 0")
        assert harness.ended("400.1").status == 0
    finally:
        harness.executor.stop(kill=True)  # type: ignore[attr-defined]
        harness.executor.close()
        end_all(name_of(surroundings))


def test_a_long_queue_of_short_jobs_keeps_the_journal_short(
    kept: Harness, surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = surroundings.parent / "journal"
    kept.sh("1.1", FOREVER, 1)
    keys = [f"{number}.1" for number in range(2, 2000)]
    kept.executor.launch([Launch(key, (0,), ["/bin/true"]) for key in keys])
    kept.until(lambda: len(kept.of(Ended)) == len(keys), within_s=60)
    kept.executor.acknowledge(keys)
    kept.reach()
    assert journal.stat().st_size > 200_000
    inode = journal.stat().st_ino
    kept.reports.clear()
    os.kill(supervisor_of(kept), signal.SIGKILL)

    assert kept.synced().keys == {"1.1"}
    assert journal.stat().st_size < 1000
    assert journal.stat().st_ino != inode


def test_the_reason_of_a_failed_start_is_named(surroundings: Path) -> None:
    folder = str(surroundings / "missing")
    paths: dict[str, Any] = {"socket": f"{folder}/s", "journal": f"{folder}/j", "log": os.devnull}
    with pytest.raises(
        ExecutorLostError, match=r"cannot start a supervisor: .*missing/j: No such file"
    ):
        DaemonExecutor(name="x", **paths)
    with pytest.raises(ExecutorLostError, match=r"cannot start a supervisor: .*No such file"):
        DaemonExecutor(name="x", **{**paths, "log": f"{folder}/log"})


def test_each_finish_is_answered(kept: Harness) -> None:
    for number in (1, 2):
        kept.sh(f"{number}.1", "exit 0")
        kept.executor.finish()
        kept.until(lambda count=number: len(kept.of(Finished)) == count)  # type: ignore[misc]
    kept.executor.define_slots([Slot(5, ("5",), ()), *SLOTS])
    kept.executor.launch([Launch("3.1", (5,), ["/bin/true"])])

    assert kept.ended("3.1").status == 0
