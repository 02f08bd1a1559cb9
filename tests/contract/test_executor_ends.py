"""An attempt is over when the last of its processes is gone."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from contract.executor_harness import Harness, alive, environment, put_away
from stoker.executors.contract import Ended, Finished, Launch, Lost, Started
from stoker.executors.daemon_executor import DaemonExecutor
from stoker.supervisor import process_tree
from stoker.supervisor.journal import Ending, read_journal

# Deaf to TERM; ends when it has read a line from the pipe `fifo`.
STUBBORN = "trap '' TERM HUP; echo $$ > {name}; read x < fifo"
# After a TERM it saves, which takes until there is a line in the pipe `fifo`.
SAVER = "trap 'read x < fifo; echo saved > out; exit 0' TERM; echo $$ > saver; while :; do sleep 0.01; done"


def keys_of_started(harness: Harness) -> list[str]:
    return [report.key for report in harness.of(Started)]


def until_dead(harness: Harness, pid: int) -> None:
    harness.until(lambda: not alive([pid]))
    harness.reach()


def launch_saver(harness: Harness) -> int:
    """Launch a shell with a saver behind it; returns the shell's pid once the saver can hear."""
    saver = harness.work / "saver.sh"
    saver.write_text(SAVER)
    harness.sh("1.1", f"sh {saver}; true")
    harness.read("saver")
    return harness.started("1.1").pid


def test_an_attempt_that_the_client_ends_is_over_when_its_whole_tree_is_gone(real: Harness) -> None:
    let_go = real.fifo("fifo")
    shell = launch_saver(real)
    real.sh("2.1", "exit 0")
    real.executor.signal("1.1", signal.SIGTERM, 600.0)
    until_dead(real, shell)
    assert real.of(Ended) == []
    assert keys_of_started(real) == ["1.1"]

    let_go()
    ended = real.ended("1.1")
    assert (ended.status, ended.leftovers, real.read("out")) == (signal.SIGTERM, (), "saved\n")
    assert real.started("2.1").at_us >= ended.at_us


def test_a_shell_that_is_ended_does_not_start_its_next_command(real: Harness) -> None:
    inner = "echo $$ > {0}; exec sleep 600"
    for number in range(1, 11):
        key = f"{number}.1"
        real.sh(key, f"sh -c '{inner.format(f'ready-{number}')}'; echo next >> next; exit 0")
        real.read(f"ready-{number}")
        real.executor.signal(key, signal.SIGTERM, 600.0)
        assert real.ended(key).status == signal.SIGTERM

    assert not (real.work / "next").exists()


def test_what_is_left_when_the_grace_is_over_is_killed(real: Harness) -> None:
    real.fifo("fifo")
    launch_saver(real)
    saver = int(real.read("saver"))
    real.executor.signal("1.1", signal.SIGTERM, 0.1)

    assert real.ended("1.1").status == signal.SIGTERM
    assert not alive([saver])


def test_a_first_process_that_outlives_its_grace_is_killed(
    real: Harness,
) -> None:
    real.fifo("fifo")
    real.sh("1.1", STUBBORN.format(name="stubborn"))
    real.read("stubborn")
    real.executor.signal("1.1", signal.SIGTERM, 0.1)

    assert real.ended("1.1").status == signal.SIGKILL


@pytest.mark.parametrize("how", ["{}", "setsid {}", "env -i PATH=$PATH setsid {}"])
def test_leftovers_keep_the_slot_and_are_killed_and_named(real: Harness, how: str) -> None:
    real.fifo("fifo")
    script = real.work / "stubborn.sh"
    script.write_text(STUBBORN.format(name="left"))
    wait = "until [ -s left ]; do sleep 0.01; done"
    real.sh("1.1", f"{how.format(f'sh {script}')} & {wait}; exit 3")
    real.sh("2.1", "exit 0")

    ended = real.ended("1.1")
    assert (ended.status, ended.leftovers, ended.stuck) == (3 << 8, ("sh",), ())
    assert not alive([int(real.read("left"))])
    assert real.started("2.1").at_us >= ended.at_us


def test_leftovers_that_end_within_their_grace_are_waited_for(real: Harness) -> None:
    let_go = real.fifo("fifo")
    real.sh("1.1", f'setsid sh -c "{STUBBORN.format(name="left")}; echo done > out" & exit 0')
    real.sh("2.1", "exit 0")
    real.read("left")
    real.executor.finish()
    let_go()
    real.until(lambda: real.of(Finished))

    assert real.read("out") == "done\n"
    assert [report.key for report in real.of(Ended)] == ["1.1", "2.1"]


def test_an_attempt_that_leaves_nothing_names_nothing(real: Harness) -> None:
    real.sh("1.1", "sleep 0.01 & exit 0")

    assert real.ended("1.1").leftovers == ()


def test_a_daemonised_part_of_another_attempt_is_no_leftover(real: Harness) -> None:
    real.sh("1.1", "(setsid sleep 600 & echo $! > helper); sleep 600", 1)
    helper = int(real.read("helper"))
    real.sh("2.1", "exit 0")

    assert real.ended("2.1").leftovers == ()
    assert alive([helper])


def test_a_slot_waits_for_leftovers_beside_those_of_another_attempt(real: Harness) -> None:
    let_go = real.fifo("fifo")
    real.sh("1.1", f'setsid sh -c "{STUBBORN.format(name="left")}" & exit 0', 1)
    real.read("left")
    for number in range(2, 6):
        real.sh(f"{number}.1", "exit 0")
    assert real.ended("5.1").leftovers == ()
    assert "1.1" not in [report.key for report in real.of(Ended)]
    let_go()
    real.ended("1.1")


def test_closing_while_leftovers_end_keeps_the_exit_status(
    local: Harness, surroundings: Path
) -> None:
    local.fifo("fifo")
    local.sh("1.1", f'setsid sh -c "{STUBBORN.format(name="left")}" & exit 3')
    left = int(local.read("left"))
    until_dead(local, local.started("1.1").pid)
    put_away(local.executor)

    ending = read_journal(str(surroundings.parent / "journal"))["1.1"].outcome
    assert isinstance(ending, Ending)
    assert ending.status == 3 << 8
    assert not alive([left])


class TestCrashes:
    """The supervisor of a daemon is killed while leftovers of a job still run."""

    def crash(self, harness: Harness) -> None:
        assert isinstance(harness.executor, DaemonExecutor)
        harness.reports.clear()
        os.kill(harness.executor.pids[0], signal.SIGKILL)
        harness.synced()

    def test_the_exit_status_of_the_first_process_is_not_lost(self, kept: Harness) -> None:
        let_go = kept.fifo("fifo")
        kept.sh("1.1", f'setsid sh -c "{STUBBORN.format(name="left")}" & exit 3')
        kept.read("left")
        until_dead(kept, kept.started("1.1").pid)
        self.crash(kept)
        assert kept.of(Ended) == []
        assert keys_of_started(kept) == ["1.1"]

        let_go()
        assert kept.ended("1.1").status == 3 << 8

    def test_the_next_supervisor_waits_for_leftovers_too(self, kept: Harness) -> None:
        go, let_go = kept.fifo("go"), kept.fifo("fifo")
        kept.sh("1.1", f'setsid sh -c "{STUBBORN.format(name="left")}" & read x < go; exit 0')
        kept.read("left")
        pid = kept.started("1.1").pid
        self.crash(kept)
        go()
        kept.until(lambda: not alive([pid]))
        assert kept.of(Ended) == []

        let_go()
        kept.until(lambda: kept.of(Ended) or kept.of(Lost))  # as far as the kernel tells
        assert not alive([int(kept.read("left"))])

    def test_a_returning_client_gets_the_attempt_reported_as_running(self, kept: Harness) -> None:
        let_go = kept.fifo("fifo")
        kept.sh("1.1", f'setsid sh -c "{STUBBORN.format(name="left")}" & exit 3')
        kept.read("left")
        until_dead(kept, kept.started("1.1").pid)
        assert kept.reconnect().keys == {"1.1"}
        assert kept.of(Ended) == []
        let_go()

        assert kept.ended("1.1").status == 3 << 8


class TestLingering:
    """A job whose leftovers may linger, in an executor that outlives its client."""

    @pytest.fixture
    def lingering(self, kept: Harness) -> Harness:
        """Return an executor in whose context 1 leftovers may linger."""
        env = {**environment(), process_tree.LINGER: "1"}
        kept.executor.define_context(1, env, str(kept.work), "/bin/sh")
        return kept

    def sh(self, harness: Harness, key: str, text: str) -> None:
        harness.executor.launch([Launch(key, (0,), ["/bin/sh", "-c", text], context=1)])

    def test_it_keeps_its_slot_until_its_tree_is_gone_when_it_is_ended(
        self, lingering: Harness
    ) -> None:
        let_go = lingering.fifo("fifo")
        (lingering.work / "saver.sh").write_text(SAVER)
        self.sh(lingering, "1.1", "sh saver.sh; true")
        lingering.read("saver")
        lingering.sh("2.1", "exit 0")
        lingering.executor.signal("1.1", signal.SIGTERM, 600.0)
        until_dead(lingering, lingering.started("1.1").pid)
        assert lingering.of(Ended) == []

        let_go()
        ended = lingering.ended("1.1")
        assert lingering.started("2.1").at_us >= ended.at_us

    def test_lingering_processes_survive_the_other_leftovers(self, lingering: Harness) -> None:
        lingering.fifo("fifo")
        (lingering.work / "stubborn.sh").write_text(STUBBORN.format(name="left"))
        leave = "sleep 600 & echo $! > stays; env -u STOKER_LINGER sh stubborn.sh &"
        self.sh(lingering, "1.1", f"{leave} until [ -s left ]; do sleep 0.01; done; exit 0")
        stays = int(lingering.read("stays"))
        try:
            ended = lingering.ended("1.1")
            assert ended.leftovers == ("sh",)
            assert not alive([int(lingering.read("left"))])
            lingering.sh("2.1", "exit 0")
            lingering.ended("2.1")
            lingering.reach()
            assert alive([stays])
        finally:
            os.kill(stays, signal.SIGKILL)
