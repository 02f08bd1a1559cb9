"""What is killed is dead, all of it; and nothing else ever is."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from fault.home import is_alive, kill
from fault.ledger import CLEAN, Verdict
from fault.table import say
from patience import until
from scale import LONG
from stoker.errors import StokerError
from stoker.wire import Kill, NewJob, NewSetting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fault.conftest import Tell
    from fault.home import Home
    from fault.work import Work

ROUNDS = 200 if LONG else 20
AT_ONCE = 20
# The first process and one that has left its group, its session and its parents, both deaf to TERM.
FUGITIVE = """
trap '' TERM HUP INT
(setsid sh -c 'trap "" TERM HUP INT; echo $$ >> {file}; while :; do sleep 1; done' &)
echo $$ >> {file}
while :; do sleep 1; done
"""


@pytest.mark.parametrize("crash", [False, True], ids=["", "daemon killed meanwhile"])
@pytest.mark.timeout(300)
def test_a_job_that_daemonises_and_ignores_term_is_gone_after_a_kill(
    home: Home, work: Work, tell: Tell, crash: bool
) -> None:
    home.start("--gpus", "0")
    with home.client() as client:
        client.set_config(NewSetting(name="cpu.jobs", value=str(AT_ONCE)))
    survivors: list[str] = []
    for number in range(ROUNDS // AT_ONCE):
        file = work.folder / f"pids{number}"
        jobs = [NewJob(command=FUGITIVE.format(file=file), script=True)] * AT_ONCE
        with home.client() as client:
            (added,) = client.add(work.submission(jobs, gpus=0))
            until(lambda: len(numbers(file)) == 2 * AT_ONCE, "they have all begun")  # noqa: B023
            client.kill(Kill(ids=f"{added.first}-{added.last}", grace_s=0.1))
        if crash:
            home.kill_daemon()
        with home.client() as client:
            [*client.wait()]
            states = Counter(job.state.value for job in client.jobs())
        until(lambda: not any(map(is_alive, numbers(file))), "they are all dead", 8.0)  # noqa: B023
        survivors += [f"process {pid}" for pid in numbers(file) if is_alive(pid)]
        assert states == {"killed": (number + 1) * AT_ONCE}
        say(f"{(number + 1) * AT_ONCE} of {ROUNDS} killed")
    crashed = ", daemon killed meanwhile" if crash else ""
    verdict = Verdict([], [], [], survivors, [], [])
    tell(f"job that daemonises and ignores TERM is killed{crashed}", ROUNDS, verdict)


def numbers(file: Path) -> list[int]:
    """The pids in a file, once they are there."""
    return [int(line) for line in file.read_text().split()] if file.exists() else []


class Bystander:
    """A process that belongs to nobody here, and notes every signal it gets."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._file = folder / "signals"
        traps = " ".join(
            f"trap 'echo {name} >> {self._file}' {name};" for name in ("TERM", "HUP", "INT", "USR1")
        )
        ready = folder / "ready"
        self.process = subprocess.Popen(
            ["sh", "-c", f"{traps} : > {ready}; while :; do sleep 0.05; done"],
            env=env,
            start_new_session=True,
        )
        until(ready.exists, "the bystander has begun")

    def is_unharmed(self) -> bool:
        """Whether it lives and has heard nothing."""
        return self.process.poll() is None and not self._file.exists()

    def close(self) -> None:
        """End it, with its session."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(params=["unmarked", "another Stoker's job"])
def bystander(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bystander]:
    """Return a process that has come by a job's number."""
    env = {"PATH": os.environ["PATH"]}
    if request.param != "unmarked":
        env["STOKER_COOKIE"] = "stoker-0123456789ab:1.1"
    found = Bystander(tmp_path, env)
    yield found
    found.close()


@pytest.mark.parametrize("ending", [False, True], ids=["running", "being killed"])
def test_a_process_that_has_come_by_a_jobs_number_is_never_signalled(
    home: Home, work: Work, tell: Tell, bystander: Bystander, ending: bool
) -> None:
    """As after a crash of everything, with a process table that has gone round since."""
    home.start("--gpus", "0")
    with home.client() as client:
        (added,) = client.add(work.submission([NewJob(command="exec sleep 60")]))
    until(lambda: any(attempt.pid for attempt in home.live()), "the job runs")
    (job,) = home.live()
    home.kill_daemon()
    for pid in [*home.supervisors(), job.pid]:
        assert pid is not None
        kill(pid)
    replace_pid(home, job.pid or 0, bystander.process.pid, ending=ending)

    with home.client() as client:
        [*client.wait()]
        state = client.show(added.first).state
        with pytest.raises(StokerError, match="already"):
            refuse(client.kill(Kill(ids=str(added.first), grace_s=0.0)).refused)
        (more,) = client.add(work.submission([NewJob(command="true")]))
        [*client.wait()]
        assert client.show(more.first).state.value == "done"
        client.stop(kill=True)
    until(lambda: not home.processes(), "everything has gone")

    assert state.value == "lost"
    assert bystander.is_unharmed()
    tell("pid of a dead job used again", 1, CLEAN)


def refuse(refused: object) -> None:
    """Make an error of a refusal, as the command line does."""
    if refused:
        raise StokerError(str(refused))


def replace_pid(home: Home, old: int, new: int, *, ending: bool) -> None:
    """Let the record and the journal say that the job was a process that it never was."""
    for path in home.folder.glob("supervisor-*.journal"):
        path.write_text(path.read_text().replace(f" {old} ", f" {new} "))
    db = sqlite3.connect(home.folder / "stoker.db")
    with db:
        db.execute("UPDATE job SET pid = ? WHERE pid = ?", (new, old))
        if ending:
            db.execute("UPDATE job SET ending = 'killed by request' WHERE pid = ?", (new,))
    db.close()
