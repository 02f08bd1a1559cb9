"""No process of a job outlives what its job is allowed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from contract.executor_harness import WITH_HELPER, Harness, alive, put_away
from stoker.executors.contract import Ended, Finished, Launch
from stoker.executors.foreground_executor import ForegroundExecutor
from stoker.supervisor import process_tree
from stoker.supervisor.journal import Ending, read_journal

LOSE_THE_SUPERVISOR = """
import os, select, signal, sys
from stoker.core.slot import Slot
from stoker.executors.contract import ExecutorLostError, Launch, Started
from stoker.executors.foreground_executor import ForegroundExecutor
env = dict(os.environ)
executor = ForegroundExecutor(name="lost", journal=sys.argv[1], env=env, cwd="/", shell="/bin/sh")
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


def test_a_signal_for_the_main_process_alone_spares_its_helpers(real: Harness) -> None:
    (real.work / "program.py").write_text(WITH_HELPER)
    real.sh("1.1", f"{sys.executable} program.py; true")
    real.read("helper")
    real.executor.signal("1.1", signal.SIGUSR2, main_only=True)

    assert int(real.read("status")) == -signal.SIGKILL
    real.ended("1.1")


def test_a_kill_ends_also_what_left_the_session_and_ignores_signals(real: Harness) -> None:
    hydra = real.hydra()
    real.executor.signal("1.1", signal.SIGTERM)
    real.reach()
    assert alive(hydra) == set(hydra)

    real.executor.kill("1.1")
    assert real.ended("1.1").status == signal.SIGKILL
    real.until(lambda: not alive(hydra))


def test_a_kill_spares_every_other_job(real: Harness) -> None:
    hydra = real.hydra()
    real.sh("2.1", "(setsid sleep 600 & echo $! > helper); sleep 600", 1)
    others = [int(real.read("helper")), real.started("2.1").pid]

    real.executor.kill("1.1")
    real.until(lambda: not alive(hydra))
    real.reach()
    assert alive(others) == set(others)


def test_many_kills_at_once_leave_nothing(real: Harness) -> None:
    keys = [f"{number}.1" for number in range(1, 6)]
    daemonise = "for i in 1 2; do setsid sh -c 'trap \"\" TERM; sleep 600' & done; wait"
    real.executor.launch([Launch(key, (), ["/bin/sh", "-c", daemonise]) for key in keys])
    pids = [real.started(key).pid for key in keys]
    for key in keys:
        real.executor.kill(key)
    real.until(lambda: len(real.of(Ended)) == len(keys))

    real.until(lambda: not alive(pids))


def test_a_part_of_stoker_that_a_job_has_started_is_spared_with_its_jobs(real: Harness) -> None:
    """`stoker add` inside a job may start the daemon: that is not the job's to take along."""
    start = (
        "env STOKER_PART=daemon setsid sh -c 'sleep 600 & echo $! > inner; wait' & echo $! > part"
    )
    real.sh("1.1", f"({start}); sleep 600 & echo $! > own; wait")
    part, own, inner = (int(real.read(name)) for name in ("part", "own", "inner"))
    try:
        real.executor.signal("1.1", signal.SIGTERM)
        real.ended("1.1")
        real.until(lambda: not alive([own]))
        real.executor.finish()
        real.until(lambda: real.of(Finished))
        assert alive([part, inner]) == {part, inner}
    finally:
        os.kill(part, signal.SIGKILL)
        os.kill(inner, signal.SIGKILL)


def test_jobs_of_another_stoker_are_spared_when_that_one_dies(kept: Harness) -> None:
    """They become children of the outer supervisor, and are not its leftovers."""
    inner = "env STOKER_COOKIE=another:7.1 setsid sleep 600 & echo $! > inner"
    kept.sh("1.1", inner)
    kept.ended("1.1")
    pid = int(kept.read("inner"))
    try:
        kept.executor.finish()
        kept.until(lambda: kept.of(Finished))
        assert alive([pid])
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_leftover_that_ignores_term_has_a_grace_of_five_seconds(real: Harness) -> None:
    real.sh("1.1", "setsid sh -c 'trap \"\" TERM; echo $$ > left; sleep 600; :' & exit 0")
    leftover = int(real.read("left"))
    ended = real.ended("1.1")

    assert not alive([leftover])
    assert ended.at_us - real.started("1.1").at_us > 4_000_000


def test_a_helper_that_hides_its_cookie_lives_as_long_as_its_job(real: Harness) -> None:
    """Programs that rewrite their title overwrite their environment; they stay in the session."""
    real.sh("1.1", "(env -i sleep 600 & echo $! > helper); sleep 600", 1)
    helper = int(real.read("helper"))
    real.sh("2.1", "sleep 600 & echo $! > leftover")
    real.ended("2.1")
    leftover = int(real.read("leftover"))

    real.until(lambda: not alive([leftover]))
    real.reach()
    assert alive([helper])


# As podman starts the monitor of a container: twice forked, in a session of its own, without the environment.
MONITOR = "(setsid env -i /bin/sh -c 'echo $$ > monitor; %s' &)"


def test_the_monitor_of_a_container_outlives_the_end_of_another_job(real: Harness) -> None:
    inside = 'env "STOKER_COOKIE=\'"$STOKER_COOKIE"\'" sleep 600 & wait'
    real.sh("1.1", MONITOR % inside + "; sleep 600", 0)
    monitor = int(real.read("monitor"))
    real.until(lambda: any(process_tree.descendants(monitor)))
    real.sh("2.1", "true", 1)

    assert real.ended("2.1").leftovers == ()
    # A leftover of a third job is killed after the same time as a stray.
    real.sh("3.1", "setsid sh -c 'trap \"\" TERM; echo $$ > left; sleep 600; :' & exit 0", 1)
    assert not alive([int(real.read("left"))]) or real.ended("3.1").leftovers
    assert alive([monitor])
    real.executor.kill("1.1")
    real.ended("1.1")
    real.until(lambda: not alive([monitor]))


def test_a_process_without_any_sign_is_left_to_the_jobs_that_may_have_started_it(
    real: Harness,
) -> None:
    real.executor.launch([Launch("1.1", (), ["/bin/sh", "-c", "sleep 600"])])
    real.started("1.1")
    real.executor.launch(
        [Launch("2.1", (), ["/bin/sh", "-c", MONITOR % "sleep 600; :" + "; sleep 600"])]
    )
    monitor = int(real.read("monitor"))
    real.executor.launch([Launch("3.1", (), ["true"])])

    assert real.ended("3.1").leftovers == ()
    real.executor.kill("2.1")
    real.ended("2.1")
    assert alive([monitor])
    real.executor.kill("1.1")
    real.until(lambda: not alive([monitor]))


def test_a_process_with_the_lease_of_a_job_ends_with_that_job(real: Harness) -> None:
    """The monitor inherits descriptors. A job on another GPU runs longer and is not its owner."""
    real.sh("2.1", "sleep 600", 1)
    real.started("2.1")
    real.sh("1.1", MONITOR % "sleep 600; :" + "; sleep 600", 0)
    monitor = int(real.read("monitor"))
    real.executor.kill("1.1")
    real.ended("1.1")

    assert not alive([monitor])
    real.reach()
    assert alive([real.started("2.1").pid])


class TestKillMode:
    def test_closing_ends_every_tree(self, local: Harness, surroundings: Path) -> None:
        hydra = local.hydra()
        put_away(local.executor)

        assert not alive(hydra)
        assert read_journal(str(surroundings.parent / "journal"))["1.1"].outcome is not None

    def test_an_end_just_before_the_client_is_gone_is_in_the_journal(
        self, local: Harness, surroundings: Path
    ) -> None:
        """The supervisor finds a dead job and a dead client at once: a success must not be forgotten."""
        executor = local.executor
        assert isinstance(executor, ForegroundExecutor)
        let_go = local.fifo("fifo")
        local.sh("1.1", "read x < fifo")
        pid = local.started("1.1").pid
        os.kill(executor.pids[0], signal.SIGSTOP)
        let_go()
        local.until(lambda: not alive([pid]))
        executor.close()
        os.kill(executor.pids[0], signal.SIGCONT)
        put_away(executor)

        ending = read_journal(str(surroundings.parent / "journal"))["1.1"].outcome
        assert isinstance(ending, Ending)
        assert ending.status == 0

    def test_a_killed_supervisor_is_reported_and_its_jobs_can_be_ended(
        self, surroundings: Path
    ) -> None:
        done = subprocess.run(
            [sys.executable, "-c", LOSE_THE_SUPERVISOR, str(surroundings / "journal")],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )

        assert done.stdout == "a supervisor process died; its commands were ended\nFalse\n"

    def test_the_journal_has_what_was_reported(self, local: Harness, surroundings: Path) -> None:
        local.sh("1.1", "exit 7")
        local.sh("2.1", "kill -9 $$")
        local.sh("3.1", "exit 0", log=surroundings / "missing" / "log")
        local.ended("2.1")
        refused = local.refused("3.1")
        local.executor.finish()
        local.until(lambda: local.of(Finished))

        records = read_journal(str(surroundings.parent / "journal"))
        for ended in local.of(Ended):
            ending = records[ended.key].outcome
            assert isinstance(ending, Ending)
            assert ending.status == ended.status
            assert records[ended.key].pid == local.started(ended.key).pid
        assert {key for key, record in records.items() if isinstance(record.outcome, Ending)} == {
            "1.1",
            "2.1",
        }
        assert records["3.1"].outcome == (refused.errno, refused.reason)
