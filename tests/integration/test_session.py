"""The private engine: a child of its client, which ends with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import pytest

from integration.api import Scripts
from stoker.core.job import Request
from stoker.errors import StokerError, UsageError
from stoker.task import messages
from stoker.task.engine_session import EngineLostError, EngineSession
from stoker.task.job import Job
from stoker.task.options import GpuOptions, encode_texts, spell_gpus

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Stoker


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineSession]:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path / "leases"))
    opening = GpuOptions("a,b").make_open(env={"OWN": "1"}, cwd=str(tmp_path))
    session = EngineSession(msgspec.structs.replace(opening, cpu_places=1))
    yield session
    session.abandon()


def finish(session: EngineSession) -> list[tuple[messages.Event, Job | None]]:
    session.close()
    return list(session.events())


def test_a_job_has_its_environment_folder_log_and_gpu(
    session: EngineSession, tmp_path: Path
) -> None:
    log = tmp_path / "job.log"
    line = 'printf "%s " $OWN $MORE $CUDA_VISIBLE_DEVICES; pwd'

    job = session.submit(line, env={"MORE": "2"}, log=str(log))
    finish(session)

    assert log.read_text() == f"1 2 a {tmp_path}\n"
    assert (job.state, job.exit_code, job.gpus, job.log) == ("done", 0, ["a"], str(log))
    assert job.seconds is not None
    assert job.seconds >= 0


def test_a_job_that_asks_starts_with_what_it_is_answered(
    session: EngineSession, tmp_path: Path
) -> None:
    asks = session.submit("echo $MORE > answered", ask=True)
    other = session.submit("true")
    session.close()
    order = []
    for event, job in session.events():
        order.append((type(event), job))
        if isinstance(event, messages.Asked):
            assert job is asks
            assert job.gpus == ["a"]
        if isinstance(event, messages.Ended) and job is other:
            session.answer(asks, {"MORE": "a word"})  # nothing waited for it

    assert (tmp_path / "answered").read_text() == "a word\n"
    assert order.index((messages.Ended, other)) < order.index((messages.Started, asks))


def test_a_refused_job_fails_alone(session: EngineSession) -> None:
    asks = session.submit("true", ask=True)
    other = session.submit("true")
    session.close()
    for event, job in session.events():
        if isinstance(event, messages.Asked):
            assert job is asks
            session.refuse(job, "required_env() raised KeyError: 'X'")

    assert (asks.state, asks.reason) == (
        "failed",
        "could not start: required_env() raised KeyError: 'X'",
    )
    assert other.ok


def test_a_job_that_was_asked_about_can_be_cancelled(session: EngineSession) -> None:
    asks = session.submit("true", ask=True)
    session.close()
    for event, _job in session.events():
        if isinstance(event, messages.Asked):
            session.cancel(asks, running=True)

    assert (asks.state, asks.reason) == ("killed", "cancelled")


def test_jobs_that_wait_or_run_are_cancelled_with_their_trees(session: EngineSession) -> None:
    runs = [session.submit("sleep 1000 & sleep 1000") for _ in "ab"]
    waits = session.submit("true")
    session.close()
    for event, job in session.events():
        if isinstance(event, messages.Started):
            session.cancel(waits)
            assert job is not None
            session.cancel(job, running=True)

    assert [job.state for job in (*runs, waits)] == ["killed"] * 3


def test_jobs_start_by_priority_on_two_slots_or_none(session: EngineSession) -> None:
    both = session.submit("true", Request(slots=2), ask=True)
    none = session.submit('test -z "$CUDA_VISIBLE_DEVICES"', Request(slots=0))
    started, later = [], []
    for event, job in session.events():
        if isinstance(event, messages.Asked):
            later = [session.submit("true", Request(slots=2, priority=n)) for n in (0, 5)]
            session.close()
            session.answer(both, {})
        elif isinstance(event, messages.Started):
            started.append(job)

    assert [job for job in started if job is not none] == [both, *reversed(later)]
    assert both.gpus == ["a", "b"]
    assert (none.gpus, none.ok) == ([], True)


def test_a_failed_job_is_tried_again(session: EngineSession, tmp_path: Path) -> None:
    job = session.submit("test -e once || { touch once; exit 3; }", Request(retries=1))
    events = [event for event, _ in finish(session)]

    ends = [event for event in events if isinstance(event, messages.Ended)]
    assert [(end.exit_code, end.retried) for end in ends] == [(3, True), (0, False)]
    assert (job.state, job.attempt) == ("done", 2)


def test_a_job_that_could_never_run_is_refused_at_once(session: EngineSession) -> None:
    with pytest.raises(UsageError, match="needs 3"):
        session.submit("true", Request(slots=3))


def test_bad_gpu_options_fail_when_the_session_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    with pytest.raises(UsageError, match="at least 1 job"):
        EngineSession(GpuOptions("0", jobs_per_gpu=0).make_open())
    assert not os.listdir(tmp_path / "home" / "private")


def test_gpus_are_spelled_as_on_the_command_line() -> None:
    assert spell_gpus([0, "1", ["2", 3]]) == "0,1,2+3"
    assert spell_gpus("0-3") == "0-3"
    with pytest.raises(UsageError, match="without a GPU"):
        spell_gpus([[]])


def test_a_killed_engine_raises_an_error(session: EngineSession) -> None:
    job = session.submit("sleep 1000")
    events = session.events()
    assert isinstance(next(events)[0], messages.Started)

    os.kill(session.child_pid, signal.SIGKILL)

    with pytest.raises(EngineLostError, match="killed by signal 9"):
        next(events)
    assert job.state == "running"


def test_a_record_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path / "leases"))
    states = []
    for _ in range(2):
        opening = GpuOptions("a").make_open(cwd=str(tmp_path))
        record = encode_texts({"name": "x"})
        session = EngineSession(msgspec.structs.replace(opening, record=record, resume=True))
        jobs = [session.submit("true"), session.submit("test -e now || { touch now; exit 1; }")]
        finish(session)
        states.append([(job.state, job.skipped) for job in jobs])

    assert states == [
        [("done", False), ("failed", False)],
        [("done", True), ("done", False)],
    ]


def test_all_trees_end_when_the_process_is_killed(stoker: Stoker) -> None:
    scripts = Scripts(stoker)
    script = scripts.start(
        """
        import os
        from stoker.task.engine_session import EngineSession
        from stoker.task.options import GpuOptions
        session = EngineSession(GpuOptions("0,1").make_open())
        reader, writer = os.pipe()
        if os.fork() == 0:  # lives on, with all that it has inherited, until this process is gone
            os.close(writer)
            os.read(reader, 1)
            os.read(0, 1)
            os._exit(0)
        session.submit("setsid sleep 1000 & echo $! > tree; sleep 1000")
        for event, job in session.events():
            print(type(event).__name__, flush=True)
        """
    )
    assert script.stdout is not None
    while not script.stdout.readline().startswith(b"Started"):
        pass
    tree = scripts.work / "tree"
    stoker.until(lambda: tree.exists() and tree.read_text().strip(), "the job has begun")
    pid = int(tree.read_text())

    script.kill()

    stoker.until(lambda: not stoker.is_alive(pid), "its tree is gone")
    assert script.stdin is not None
    script.stdin.close()


def test_a_forked_process_leaves_the_engine_alone(stoker: Stoker) -> None:
    out = Scripts(stoker).ok(
        """
        import os, sys
        from stoker.errors import StokerError
        from stoker.task.engine_session import EngineSession
        from stoker.task.options import GpuOptions
        session = EngineSession(GpuOptions("0").make_open())
        session.submit("true")
        if os.fork() == 0:
            try:
                session.submit("true")
            except StokerError as error:
                print(error)
            sys.exit()
        os.wait()
        session.close()
        for event, job in session.events():
            print(type(event).__name__)
        """
    )
    assert "make its own" in out
    assert out.splitlines()[-2:] == ["Started", "Ended"]


def test_an_error_of_the_engine_is_one_of_ours() -> None:
    assert issubclass(EngineLostError, StokerError)
