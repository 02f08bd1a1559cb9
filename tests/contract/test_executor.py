"""What every executor promises the engine, over all executors; and what real processes meet."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from stoker.core.slot import Slot
from stoker.executors.contract import (
    Ended,
    Executor,
    Finished,
    Held,
    Launch,
    Refused,
    Released,
    Report,
    Revoked,
    Started,
    Strays,
    Unheld,
)
from stoker.executors.local import LocalExecutor
from stoker.executors.shepherd import trees
from stoker.executors.shepherd.journal import read_journal
from stoker.gpus import lease
from stoker.testing.executor import FakeExecutor

SLOTS = (Slot(0, ("0",), ("GPU-0",)), Slot(1, ("2", "3"), ("GPU-2", "GPU-3")))
FOREVER = "exec sleep 600"
R = TypeVar("R", bound=Report)
# What a job sees of its surroundings.
PROBE = """
import json, os
def is_open(fd):
    try:
        return bool(os.fstat(fd))
    except OSError:
        return False
print(json.dumps({
    "stdin": os.readlink("/proc/self/fd/0"),
    "pid": os.getpid(), "session": os.getsid(0), "group": os.getpgid(0),
    "cwd": os.getcwd(), "env": dict(os.environ),
    "open": [fd for fd in map(int, os.listdir("/proc/self/fd")) if is_open(fd)],
}))
"""
# A tree that does all it can to be forgotten: forks twice, leaves the session, ignores TERM.
HYDRA = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
out = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def tell():
    os.write(out, b"%d\\n" % os.getpid())
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            tell()
            if os.fork() == 0:
                os.setpgid(0, 0)
                tell()
            time.sleep(600)
        os._exit(0)
    os.wait()
tell()
time.sleep(600)
"""
LOSE_THE_SHEPHERD = """
import os, select, signal, sys
from stoker.core.slot import Slot
from stoker.executors.contract import ExecutorLostError, Launch, Started
from stoker.executors.local import LocalExecutor
executor = LocalExecutor(name="lost", journal=sys.argv[1], env=dict(os.environ), cwd="/", shell="/bin/sh")
executor.define_slots([Slot(0, ("0",), ())])
executor.launch([Launch("1.1", (0,), ["/bin/sh", "-c", "sleep 600 & setsid sleep 600 & wait"])])
reports = []
while not any(isinstance(report, Started) for report in reports):
    select.select([executor], [], [], 10)
    reports += executor.observe()
os.kill(executor.pids[0], signal.SIGKILL)
try:
    while True:
        select.select([executor], [], [], 10)
        executor.observe()
except ExecutorLostError as error:
    print(error)
executor.end_orphans()
executor.close()
print(os.path.exists(f"/proc/{reports[0].pid}"))
"""


class Rig:
    """An executor at work, and all it has reported."""

    def __init__(self, executor: Executor, occupy: Callable[[str], Callable[[], None]]) -> None:
        self.executor = executor
        self.occupy = occupy
        self.reports: list[Report] = []

    def hold_all(self) -> None:
        self.executor.define_slots(SLOTS)
        for slot in SLOTS:
            self.executor.hold(slot.index)
        self.until(lambda: len(self.of(Held)) == len(SLOTS))

    def sh(self, key: str, text: str, slot: int = 0, log: str | None = None) -> None:
        self.executor.launch([Launch(key, (slot,), ["/bin/sh", "-c", text], log)])

    def of(self, kind: type[R]) -> list[R]:
        return [report for report in self.reports if isinstance(report, kind)]

    def until(self, fact: Callable[[], bool], within_s: float = 10.0) -> None:
        """Take in reports until a fact is there."""
        deadline = time.monotonic() + within_s
        while not fact():
            assert time.monotonic() < deadline, f"it never came true; reported: {self.reports}"
            select.select([self.executor], [], [], 0.02)
            self.reports += self.executor.observe()

    def ended(self, key: str) -> Ended:
        """Wait for an attempt's end."""
        self.until(lambda: any(report.key == key for report in self.of(Ended)))
        return next(report for report in self.of(Ended) if report.key == key)

    def started(self, key: str) -> Started:
        self.until(lambda: any(report.key == key for report in self.of(Started)))
        return next(report for report in self.of(Started) if report.key == key)

    def refused(self, key: str) -> Refused:
        self.until(lambda: any(report.key == key for report in self.of(Refused)))
        return next(report for report in self.of(Refused) if report.key == key)

    def reach(self) -> None:
        """Wait until everything asked so far has been dealt with."""
        count = len(self.of(Held))
        self.executor.hold(0)
        self.until(lambda: len(self.of(Held)) > count)


def act(launch: Launch) -> int | None:
    """What the fake makes of the few commands that both executors are given."""
    text = launch.argv[-1]
    if found := re.fullmatch(r"exit (\d+)", text):
        return int(found[1]) << 8
    if found := re.fullmatch(r"kill -(\d+) \$\$", text):
        return int(found[1])
    return None


def occupy_for_real(key: str) -> Callable[[], None]:
    held = lease.take(key, "somebody else")
    assert held
    return held.release


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.delenv(trees.COOKIE, raising=False)
    work = tmp_path / "work"
    work.mkdir()
    return work


def local_executor(work: Path, **changes: object) -> LocalExecutor:
    settings: dict[str, object] = {
        "name": f"test-{os.getpid()}-{work.parent.name}",
        "journal": str(work.parent / "journal"),
        "env": {"PATH": os.environ["PATH"], "ODD": os.fsdecode(b"\xfe\xff")},
        "cwd": str(work),
        "shell": "/bin/sh",
    }
    return LocalExecutor(**{**settings, **changes})  # type: ignore[arg-type]


def put_away(executor: LocalExecutor) -> None:
    """Close, and see the shepherd off."""
    executor.close()
    try:
        for pid in executor.pids:
            os.waitpid(pid, 0)
    except ChildProcessError:
        return  # it has finished, and was seen off then


@pytest.fixture
def local(surroundings: Path) -> Iterator[Rig]:
    executor = local_executor(surroundings)
    rig = Rig(executor, occupy_for_real)
    try:
        rig.hold_all()
        yield rig
    finally:
        put_away(executor)


@pytest.fixture
def fake() -> Iterator[Rig]:
    executor = FakeExecutor(time.time, act)

    def occupy(key: str) -> Callable[[], None]:
        executor.foreign.add(key)
        return lambda: executor.foreign.discard(key)

    rig = Rig(executor, occupy)
    rig.hold_all()
    yield rig
    executor.close()


@pytest.fixture(params=["local", "fake"])
def rig(request: pytest.FixtureRequest) -> Rig:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Rig)
    return found


@pytest.mark.parametrize("code", [0, 1, 7, 127, 255])
def test_an_exit_code_is_told_exactly(rig: Rig, code: int) -> None:
    rig.sh("1.1", f"exit {code}")

    assert rig.ended("1.1").status == code << 8
    assert rig.started("1.1").pid > 0


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_death_by_signal_is_told_exactly(rig: Rig, signum: int) -> None:
    rig.sh("1.1", f"kill -{int(signum)} $$")

    status = rig.ended("1.1").status
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signum


def test_a_start_is_told_before_its_end_and_the_times_are_in_order(rig: Rig) -> None:
    before = time.time_ns() // 1000
    rig.sh("1.1", "exit 0")
    ended = rig.ended("1.1")
    started = rig.started("1.1")

    assert rig.reports.index(started) < rig.reports.index(ended)
    assert before <= started.at_us <= ended.at_us <= time.time_ns() // 1000 + 1


def test_attempts_of_one_slot_run_one_after_the_other_in_order(rig: Rig) -> None:
    keys = [f"{number}.1" for number in range(1, 30)]
    rig.executor.launch([Launch(key, (0,), ["/bin/sh", "-c", "exit 0"]) for key in keys])
    rig.ended(keys[-1])

    assert [report.key for report in rig.of(Started)] == keys
    assert [report.key for report in rig.of(Ended)] == keys


def test_what_waits_behind_another_starts_only_when_that_has_ended(rig: Rig) -> None:
    rig.sh("1.1", FOREVER)
    rig.sh("2.1", FOREVER)
    rig.sh("3.1", "exit 3", slot=1)
    rig.ended("3.1")
    rig.started("1.1")
    rig.reach()
    assert [report.key for report in rig.of(Started) if report.key == "2.1"] == []

    rig.executor.kill("1.1")
    rig.ended("1.1")
    rig.started("2.1")


def test_every_launch_ends_in_exactly_one_way(rig: Rig) -> None:
    keys = [f"{number}.1" for number in range(1, 41)]
    for number, key in enumerate(keys):
        rig.sh(key, FOREVER if number % 8 == 0 else f"exit {number % 3}", slot=number % 2)
    for key in keys[10:20]:
        rig.executor.revoke(key)
    over: Counter[str] = Counter()

    def count() -> bool:
        over.clear()
        over.update(
            report.key for report in rig.reports if isinstance(report, (Ended, Refused, Revoked))
        )
        for report in rig.of(Started):
            if not over[report.key]:
                rig.executor.kill(report.key)
        return len(over) == len(keys)

    rig.until(count)
    rig.executor.finish()
    rig.until(lambda: bool(rig.of(Finished)))

    assert Counter(keys) == over
    assert {report.key for report in rig.of(Revoked)} <= set(keys[10:20])


def test_an_attempt_that_waits_can_be_taken_back_and_never_runs(rig: Rig) -> None:
    rig.sh("1.1", FOREVER)
    rig.sh("2.1", "exit 0")
    rig.sh("3.1", "exit 0")
    rig.executor.revoke("2.1")
    rig.until(lambda: bool(rig.of(Revoked)))
    rig.executor.kill("1.1")
    rig.ended("3.1")

    assert rig.of(Revoked) == [Revoked("2.1")]
    assert [report.key for report in rig.of(Started)] == ["1.1", "3.1"]


def test_an_attempt_that_runs_is_not_taken_back(rig: Rig) -> None:
    rig.sh("1.1", FOREVER)
    rig.started("1.1")
    rig.executor.revoke("1.1")
    rig.executor.revoke("9.9")
    rig.reach()
    assert rig.of(Revoked) == []

    rig.executor.kill("1.1")
    assert rig.ended("1.1").status == signal.SIGKILL


def test_a_signal_reaches_the_job(rig: Rig) -> None:
    rig.sh("1.1", FOREVER)
    rig.started("1.1")
    rig.executor.signal("1.1", signal.SIGTERM)

    assert rig.ended("1.1").status == signal.SIGTERM


def test_signals_and_kills_of_what_does_not_run_do_nothing(rig: Rig) -> None:
    rig.sh("1.1", "exit 0")
    rig.ended("1.1")
    for key in ("1.1", "9.9"):
        rig.executor.kill(key)
        rig.executor.signal(key, signal.SIGTERM)
    rig.sh("2.1", "exit 0")

    assert rig.ended("2.1").status == 0


def test_a_gpu_that_somebody_else_holds_is_told_and_none_of_the_slot_is_kept(rig: Rig) -> None:
    rig.executor.release(1, ["GPU-2", "GPU-3"])
    rig.until(lambda: rig.of(Released) == [Released(1)])
    let_go = rig.occupy("GPU-3")
    rig.executor.hold(1)
    rig.until(lambda: bool(rig.of(Unheld)))
    assert rig.of(Unheld) == [Unheld(1, "GPU-3", None)]

    let_go()
    held = len(rig.of(Held))
    rig.executor.hold(1)
    rig.until(lambda: len(rig.of(Held)) > held)


def test_the_descriptor_is_readable_when_there_is_news_and_not_before(rig: Rig) -> None:
    rig.sh("1.1", FOREVER)
    rig.started("1.1")
    rig.reach()
    assert select.select([rig.executor], [], [], 0)[0] == []

    rig.executor.kill("1.1")
    assert select.select([rig.executor], [], [], 10)[0] == [rig.executor]
    assert rig.executor.observe()
    assert rig.executor.observe() == []


def test_finish_is_answered_when_nothing_is_left(rig: Rig) -> None:
    rig.sh("1.1", "exit 0")
    rig.ended("1.1")
    rig.executor.finish()
    rig.until(lambda: bool(rig.of(Finished)))

    assert rig.of(Finished) == [Finished()]


def test_finish_comes_after_all_that_was_launched_before_it(rig: Rig) -> None:
    keys = [f"{number}.1" for number in range(1, 8)]
    rig.executor.launch([Launch(key, (0,), ["/bin/sh", "-c", "exit 7"]) for key in keys])
    rig.executor.finish()
    rig.until(lambda: bool(rig.of(Finished)))

    assert [report.key for report in rig.of(Ended)] == keys
    assert rig.reports[-1] == Finished()


class TestSurroundings:
    """What a real job finds around it."""

    @pytest.fixture
    def seen(self, local: Rig, surroundings: Path) -> dict[str, object]:
        log = surroundings / "log"
        launch = Launch("12.3", (1,), [sys.executable, "-I", "-c", PROBE], str(log))
        local.executor.launch([launch])
        assert local.ended("12.3").status == 0
        found = json.loads(log.read_text())
        assert isinstance(found, dict)
        assert found["pid"] == local.started("12.3").pid
        return found

    def test_its_input_is_empty(self, seen: dict[str, object]) -> None:
        assert seen["stdin"] == "/dev/null"

    def test_it_has_a_session_and_a_group_of_its_own(self, seen: dict[str, object]) -> None:
        assert seen["session"] == seen["group"] == seen["pid"]

    def test_it_runs_in_the_folder_it_was_given(
        self, seen: dict[str, object], surroundings: Path
    ) -> None:
        assert seen["cwd"] == str(surroundings)

    def test_it_knows_its_gpus_its_number_and_its_attempt(self, seen: dict[str, object]) -> None:
        env = seen["env"]
        assert isinstance(env, dict)
        assert env["CUDA_VISIBLE_DEVICES"] == "2,3"
        assert env["STOKER_JOB_ID"] == "12"
        assert env["STOKER_ATTEMPT"] == "3"
        assert env["PATH"] == os.environ["PATH"]
        assert env[trees.COOKIE].endswith(":12.3")

    def test_it_has_only_the_environment_it_was_given(self, seen: dict[str, object]) -> None:
        env = seen["env"]
        assert isinstance(env, dict)
        own = {"CUDA_VISIBLE_DEVICES", "STOKER_JOB_ID", "STOKER_ATTEMPT", trees.COOKIE}
        assert set(env) - {"LC_CTYPE"} == {"PATH", "ODD"} | own

    def test_it_inherits_the_leases_and_no_other_descriptor(self, seen: dict[str, object]) -> None:
        ours = {int(fd) for fd in os.listdir("/proc/self/fd")}
        passed_on = {fd for fd in ours if fd > 3 and is_inheritable(fd)}
        found = seen["open"]
        assert isinstance(found, list)
        assert set(found) == {0, 1, 2, 200, 201} | passed_on

    def test_no_signal_is_blocked_or_ignored(self, local: Rig, surroundings: Path) -> None:
        log = surroundings / "log"
        local.executor.launch(
            [Launch("1.1", (0,), ["/bin/grep", "^Sig[BI]", "/proc/self/status"], str(log))]
        )
        local.ended("1.1")

        masks = dict(line.split() for line in log.read_text().splitlines())
        real_time = ~0x7FFFFFFF
        assert int(masks["SigBlk:"], 16) == 0
        assert int(masks["SigIgn:"], 16) & ~real_time == 0

    def test_a_broken_pipe_ends_its_writer_quietly(self, local: Rig, surroundings: Path) -> None:
        log = surroundings / "log"
        local.sh("1.1", "yes | head -1", log=str(log))

        assert local.ended("1.1").status == 0
        assert log.read_text() == "y\n"

    def test_bytes_that_are_no_text_arrive_as_they_are(
        self, local: Rig, surroundings: Path
    ) -> None:
        odd = os.fsdecode(b"a\xff\xc3(b\n'\"$x")
        script = 'printf "%s|%s" "$1" "$ODD" > "$2"'
        out = os.fsdecode(bytes(surroundings) + b"/out\xfd")
        local.executor.launch([Launch("1.1", (0,), ["/bin/sh", "-c", script, "sh", odd, out])])

        assert local.ended("1.1").status == 0
        with open(out, "rb") as file:
            assert file.read() == b"a\xff\xc3(b\n'\"$x|\xfe\xff"

    def test_a_log_is_appended_to_with_output_and_errors(
        self, local: Rig, surroundings: Path
    ) -> None:
        log = surroundings / os.fsdecode(b"log\xff")
        log.write_text("earlier\n")
        local.sh("1.1", "echo out; echo err >&2", log=str(log))
        local.sh("1.2", "echo again", log=str(log))
        local.ended("1.2")

        assert log.read_text() == "earlier\nout\nerr\nagain\n"

    def test_what_an_attempt_used_is_told(self, local: Rig) -> None:
        local.sh("1.1", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")

        ended = local.ended("1.1")
        assert ended.cpu_us > 0
        assert ended.max_rss_kb > 100


class TestStarts:
    """Programs that are not what they seemed."""

    def test_a_script_without_shebang_is_run_by_the_shell(
        self, local: Rig, surroundings: Path
    ) -> None:
        script = surroundings / "train"
        script.write_text('echo "$#:$1" > out\nexit 7\n')
        script.chmod(0o755)
        local.executor.launch([Launch("1.1", (0,), [str(script), "a", "b"])])

        assert local.ended("1.1").status == 7 << 8
        assert (surroundings / "out").read_text() == "2:a\n"

    def test_a_script_without_shebang_gets_its_words_as_they_are(
        self, local: Rig, surroundings: Path
    ) -> None:
        folder = surroundings / "my $(tools)"
        folder.mkdir()
        script = folder / "train"
        script.write_text('printf "%s\\n" "$@" > out\n')
        script.chmod(0o755)
        local.executor.launch([Launch("1.1", (0,), [str(script), "a b", "$HOME", ";", "*"])])

        assert local.ended("1.1").status == 0
        assert (surroundings / "out").read_text() == "a b\n$HOME\n;\n*\n"

    def test_a_program_that_vanished_is_told_by_the_shell(
        self, local: Rig, surroundings: Path
    ) -> None:
        log = surroundings / "log"
        local.executor.launch(
            [Launch("1.1", (0,), [str(surroundings / "vanished"), "x"], str(log))]
        )

        assert local.ended("1.1").status == 127 << 8
        assert "not found" in log.read_text()

    def test_a_program_that_may_not_be_run_is_told_by_the_shell(
        self, local: Rig, surroundings: Path
    ) -> None:
        (surroundings / "data").write_text("x")
        local.executor.launch([Launch("1.1", (0,), [str(surroundings / "data")])])

        assert local.ended("1.1").status == 126 << 8

    def test_a_log_that_cannot_be_opened_refuses_the_start_and_the_next_goes_on(
        self, local: Rig, surroundings: Path
    ) -> None:
        local.sh("1.1", "touch ran", log=str(surroundings / "missing" / "log"))
        local.sh("2.1", "exit 0")

        refused = local.refused("1.1")
        assert refused.reason == f"No such file or directory: {surroundings / 'missing' / 'log'}"
        assert local.ended("2.1").status == 0
        assert not (surroundings / "ran").exists()
        assert [report.key for report in local.of(Started)] == ["2.1"]

    def test_a_folder_that_is_gone_refuses_the_start(self, surroundings: Path) -> None:
        executor = local_executor(surroundings, cwd=str(surroundings / "gone"))
        rig = Rig(executor, occupy_for_real)
        try:
            rig.hold_all()
            rig.sh("1.1", "exit 0")
            gone = surroundings / "gone"
            assert rig.refused("1.1").reason == f"No such file or directory: {gone}"
        finally:
            put_away(executor)

    def test_a_shell_that_is_gone_refuses_the_start(self, surroundings: Path) -> None:
        executor = local_executor(surroundings, shell="/no/such/shell")
        rig = Rig(executor, occupy_for_real)
        try:
            rig.hold_all()
            executor.launch([Launch("1.1", (0,), ["/no/such/shell", "-c", "exit 0"])])
            assert rig.refused("1.1").reason == "No such file or directory: /no/such/shell"
        finally:
            put_away(executor)

    def test_arguments_that_are_too_long_refuse_the_start(self, local: Rig) -> None:
        local.sh("1.1", "x" * 200_000)

        assert local.refused("1.1").reason == "Argument list too long: /bin/sh"


class TestTrees:
    """No process of a job outlives what its job is allowed."""

    @pytest.fixture
    def hydra(self, local: Rig, surroundings: Path) -> list[int]:
        heads = surroundings / "heads"
        local.executor.launch([Launch("1.1", (0,), [sys.executable, "-c", HYDRA, str(heads)])])
        local.until(lambda: heads.exists() and heads.read_text().count("\n") == 7)
        return [int(line) for line in heads.read_text().split()]

    def test_a_kill_ends_also_what_left_the_session_and_ignores_signals(
        self, local: Rig, hydra: list[int]
    ) -> None:
        local.executor.signal("1.1", signal.SIGTERM)
        local.reach()
        assert alive(hydra) == set(hydra)

        local.executor.kill("1.1")
        assert local.ended("1.1").status == signal.SIGKILL
        local.until(lambda: not alive(hydra))

    def test_a_kill_spares_every_other_job(
        self, local: Rig, hydra: list[int], surroundings: Path
    ) -> None:
        local.sh("2.1", "(setsid sleep 600 & echo $! > helper); sleep 600", slot=1)
        helper = surroundings / "helper"
        local.until(lambda: helper.exists() and helper.read_text().endswith("\n"))
        others = [local.started("2.1").pid, int(helper.read_text())]

        local.executor.kill("1.1")
        local.until(lambda: not alive(hydra))
        local.reach()
        assert alive(others) == set(others)

    def test_closing_ends_every_tree(
        self, local: Rig, hydra: list[int], surroundings: Path
    ) -> None:
        executor = local.executor
        assert isinstance(executor, LocalExecutor)
        put_away(executor)

        assert not alive(hydra)
        assert read_journal(str(surroundings.parent / "journal"))["1.1"].ending is not None

    def test_an_end_just_before_the_client_is_gone_is_in_the_journal(
        self, local: Rig, surroundings: Path
    ) -> None:
        """The shepherd finds a dead job and a dead client at once: a success must not be forgotten."""
        executor = local.executor
        assert isinstance(executor, LocalExecutor)
        os.mkfifo(surroundings / "fifo")
        local.sh("1.1", "read x < fifo")
        pid = local.started("1.1").pid
        os.kill(executor.pids[0], signal.SIGSTOP)
        writer = os.open(surroundings / "fifo", os.O_WRONLY)
        os.write(writer, b"go\n")
        os.close(writer)
        local.until(lambda: not alive([pid]))
        executor.close()
        os.kill(executor.pids[0], signal.SIGCONT)
        put_away(executor)

        ending = read_journal(str(surroundings.parent / "journal"))["1.1"].ending
        assert ending is not None
        assert ending.status == 0

    def test_a_leftover_has_a_grace_of_five_seconds_and_is_killed_then(
        self, local: Rig, surroundings: Path
    ) -> None:
        local.sh("1.1", "setsid sleep 600 & echo $! > leftover")
        local.ended("1.1")
        began = time.monotonic()
        leftover = int((surroundings / "leftover").read_text())
        local.sh("2.1", "exit 0")
        local.ended("2.1")
        assert alive([leftover])

        local.until(lambda: not alive([leftover]), within_s=8)
        assert time.monotonic() - began > 4

    def test_finishing_waits_for_leftovers_that_end_by_themselves(
        self, local: Rig, surroundings: Path
    ) -> None:
        fifo = surroundings / "fifo"
        os.mkfifo(fifo)
        local.sh("1.1", "setsid sh -c 'read x < fifo; echo done > out' & exit 0")
        local.ended("1.1")
        local.executor.finish()
        writer = os.open(fifo, os.O_WRONLY)
        os.write(writer, b"go\n")
        os.close(writer)
        local.until(lambda: bool(local.of(Finished)))

        assert (surroundings / "out").read_text() == "done\n"
        assert len(local.of(Strays)) == 1

    def test_a_helper_that_hides_its_cookie_lives_as_long_as_its_job(
        self, local: Rig, surroundings: Path
    ) -> None:
        """Programs that rewrite their title overwrite their environment; they stay in the session."""
        local.sh("1.1", "(env -i sleep 600 & echo $! > helper); sleep 600", slot=1)
        said = surroundings / "helper"
        local.until(lambda: said.exists() and said.read_text().endswith("\n"))
        local.sh("2.1", "sleep 600 & echo $! > leftover")
        local.ended("2.1")
        leftover = int((surroundings / "leftover").read_text())
        helper = int(said.read_text())

        local.until(lambda: not alive([leftover]), within_s=8)
        local.reach()
        assert alive([helper])

    def test_when_the_shepherd_is_killed_that_is_told_and_its_jobs_can_be_ended(
        self, surroundings: Path
    ) -> None:
        done = subprocess.run(
            [sys.executable, "-c", LOSE_THE_SHEPHERD, str(surroundings / "journal")],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )

        assert done.stdout == "a shepherd process died; its commands were ended\nFalse\n"


def test_the_journal_tells_what_was_reported(local: Rig, surroundings: Path) -> None:
    local.sh("1.1", "exit 7")
    local.sh("2.1", "kill -9 $$")
    local.sh("3.1", "exit 0", log=str(surroundings / "missing" / "log"))
    local.ended("2.1")
    local.refused("3.1")
    local.executor.finish()
    local.until(lambda: bool(local.of(Finished)))

    records = read_journal(str(surroundings.parent / "journal"))
    for ended in local.of(Ended):
        ending = records[ended.key].ending
        assert ending is not None
        assert ending.status == ended.status
        assert records[ended.key].pid == local.started(ended.key).pid
    assert {key for key, record in records.items() if record.ending} == {"1.1", "2.1"}


def is_inheritable(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:
        return False


def alive(pids: list[int]) -> set[int]:
    return set(pids) & trees.processes().keys()
