"""Exit recorder: what it writes of the children that a supervisor has left, and when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from patience import until
from stoker.supervisor import exit_recorder, process_tree
from stoker.supervisor.exit_file import ExitReader, exits_path

# Takes the part of a supervisor: starts programs, says which, and ends as it is told.
SUPERVISOR = """
import os, sys, time
from stoker.supervisor.exit_recorder import fork_supervisor
fork_supervisor(sys.argv[1])
env = {"PATH": os.environ["PATH"]}
pids = [os.posix_spawn("/bin/sh", ["sh", "-c", line], env, setsid=True) for line in sys.argv[2:]]
print(os.getpid(), os.getppid(), os.getsid(0), *pids, flush=True)
sys.stdin.read(1)
"""


class Supervisor:
    """A process that has a recorder and starts programs."""

    def __init__(self, journal: Path, *lines: str) -> None:
        words = [sys.executable, "-c", SUPERVISOR, str(journal), *lines]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.pid, self.recorder, self.session, *self.jobs = map(
            int, self._process.stdout.readline().split()
        )
        assert self.recorder == self._process.pid

    def __enter__(self) -> Supervisor:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_recording():
            process_tree.send([self.pid, *self.jobs], signal.SIGKILL)
        with self._process:
            pass

    def end(self) -> None:
        """Let it end by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self) -> int:
        """Wait until the recorder has ended."""
        return self._process.wait(60)

    def is_recording(self) -> bool:
        """Whether the recorder has not ended yet."""
        return self._process.poll() is None


def job(folder: Path, name: str, end: str) -> str:
    """Return a line that waits for a file, and then ends."""
    return f"until [ -e {folder / name} ]; do sleep 0.02; done; {end}"


def ticks_of(pid: int) -> int:
    return int(process_tree.stat_fields(pid)[19])


def test_jobs_of_a_killed_supervisor_are_recorded_as_they_end(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    lines = [
        job(tmp_path, "a", "exit 3"),
        job(tmp_path, "b", "kill -TERM $$"),
        job(tmp_path, "b", "exit 0"),
    ]
    with Supervisor(journal, *lines) as supervisor:
        ticks = [ticks_of(pid) for pid in supervisor.jobs]
        boot = process_tree.boot_id()
        os.kill(supervisor.pid, signal.SIGKILL)

        (tmp_path / "a").touch()
        (first,) = until(lambda: ExitReader(str(journal)).read(), "the first one is recorded")
        assert first[:4] == (boot, supervisor.jobs[0], ticks[0], 3 << 8)
        assert supervisor.is_recording()
        (tmp_path / "b").touch()
        supervisor.wait()

        found = {each.pid: each for each in ExitReader(str(journal)).read()}
        assert [found[pid].status for pid in supervisor.jobs] == [3 << 8, signal.SIGTERM, 0]
        assert [found[pid].ticks for pid in supervisor.jobs] == ticks
        assert not [pid for pid in supervisor.jobs if os.path.exists(f"/proc/{pid}")]


def test_only_first_processes_are_recorded(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    helper = f"({job(tmp_path, 'b', 'exit 5')}) & "
    later = f"setsid sh -c '{job(tmp_path, 'c', 'exit 6')}' & "
    with Supervisor(journal, helper + job(tmp_path, "a", f"{later} exit 3")) as supervisor:
        os.kill(supervisor.pid, signal.SIGKILL)
        for name in "abc":
            (tmp_path / name).touch()
        supervisor.wait()

        assert [each.status for each in ExitReader(str(journal)).read()] == [3 << 8]


def test_an_end_stays_in_the_process_table_until_it_is_written(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    obstacle = Path(exits_path(str(journal)))
    os.mkfifo(obstacle)
    with Supervisor(journal, job(tmp_path, "a", "exit 3")) as supervisor:
        pid = supervisor.jobs[0]
        os.kill(supervisor.pid, signal.SIGKILL)
        (tmp_path / "a").touch()
        until(lambda: process_tree.find_process(pid) is None, "the job has ended")
        assert process_tree.stat_fields(pid)[0] == b"Z"

        obstacle.unlink()
        supervisor.wait()
        (found,) = ExitReader(str(journal)).read()
        assert (found.pid, found.status) == (pid, 3 << 8)


def test_a_supervisor_that_ends_by_itself_leaves_nothing_to_record(tmp_path: Path) -> None:
    with Supervisor(tmp_path / "journal", job(tmp_path, "a", f"touch {tmp_path}/b")) as supervisor:
        supervisor.end()
        assert supervisor.wait() == 0
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "a").touch()
        until((tmp_path / "b").exists, "what it has left goes on")


@pytest.mark.parametrize("file", ["cmdline", "comm"])
def test_no_part_of_its_name_says_python_or_stoker(tmp_path: Path, file: str) -> None:
    with Supervisor(tmp_path / "journal") as supervisor:
        name = Path(f"/proc/{supervisor.recorder}/{file}").read_bytes()
        own = Path(f"/proc/{supervisor.pid}/{file}").read_bytes()
        supervisor.end()
        supervisor.wait()

        assert name.strip(b"\0\n") == exit_recorder.TITLE
        assert b"python" in own, "the supervisor has its own name"


def test_a_signal_to_the_process_group_of_a_supervisor_spares_its_recorder(tmp_path: Path) -> None:
    with Supervisor(tmp_path / "journal", job(tmp_path, "a", "exit 3")) as supervisor:
        assert supervisor.session == supervisor.pid
        os.killpg(supervisor.pid, signal.SIGKILL)
        (tmp_path / "a").touch()
        supervisor.wait()

        assert [each.status for each in ExitReader(str(tmp_path / "journal")).read()] == [3 << 8]
