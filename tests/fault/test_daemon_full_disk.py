"""A full disk under the database or the logs: nothing is promised that is not kept, and it passes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from fault.home import is_alive
from fault.ledger import CLEAN
from patience import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fault.conftest import Tell
    from fault.home import Home

ENTER = ["nsenter", "--mount", "--target"]


class Said(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


# Large enough that the log of the database is not emptied before the disk is full: it has no room then.
_DISK = "size=64M,mode=700"


class SmallDisk:
    """A disk of its own at the home, seen only from inside; gone when its keeper is."""

    def __init__(self, home: Home, options: str) -> None:
        script = f"mount -t tmpfs -o {options} tmpfs {home.path} && echo mounted && exec sleep 1000"
        self._keeper = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self._keeper.stdout is not None
        self.is_mounted = self._keeper.stdout.readline() == b"mounted\n"
        self.folder = Path(f"/proc/{self._keeper.pid}/root{home.path}")
        self._work = home.work

    def stoker(self, *words: str, timeout_s: float = 30.0) -> Said:
        """Run the command line inside."""
        ended = subprocess.run(
            [*ENTER, str(self._keeper.pid), sys.executable, "-m", "stoker", *words],
            cwd=self._work,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Said(ended.returncode, ended.stdout, ended.stderr)

    def add(self, *commands: str, gpus: int = 1) -> list[int]:
        """Add commands at once; their ids."""
        lines = self._work / "lines"
        lines.write_text("".join(f"{command}\n" for command in commands))
        said = self.stoker("add", "-q", f"-g{gpus}", "--batch", str(lines))
        assert said.code == 0, said
        first = int(said.out.split("-")[0])
        assert said.out.strip() == f"{first}-{first + len(commands) - 1}"
        return [*range(first, first + len(commands))]

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, as the daemon tells."""
        found = json.loads(self.stoker("ls", "-a", "--json").out)
        assert isinstance(found, list)
        return found

    def fill(self) -> None:
        """Take the last byte."""
        with open(self.folder / "fill", "ab", buffering=0) as file, contextlib.suppress(OSError):
            for size in (4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * size)

    def free(self) -> None:
        """Give all of it back."""
        os.unlink(self.folder / "fill")

    def close(self) -> None:
        """Let it go."""
        self._keeper.kill()
        with self._keeper:
            pass


@pytest.fixture
def disk(home: Home, request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    """Return a small disk at the home, of 4 MB if the test does not say otherwise."""
    disk = SmallDisk(home, getattr(request, "param", _DISK))
    try:
        if not disk.is_mounted:
            reason = "no small disk can be mounted here"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        yield disk
    finally:
        disk.stoker("daemon", "stop", "--kill")
        disk.close()


@pytest.fixture(autouse=True)
def _counted(tell: Tell) -> None:
    tell("full disk under database and logs", 1, CLEAN)


def words_in(file: Path) -> list[str]:
    """What jobs have written to a file; nothing before the first has."""
    return file.read_text().split() if file.exists() else []


def is_one_line(text: str) -> bool:
    """Whether it is a complaint as complaints should be."""
    return text.startswith("stoker: ") and text.count("\n") == 1


def test_nothing_is_acknowledged_that_is_not_on_the_disk(home: Home, disk: SmallDisk) -> None:
    assert disk.stoker("daemon", "start", "--gpus", "0").code == 0
    disk.fill()
    acknowledged: list[int] = []
    refused = Said(0, "", "")
    for _ in range(200):
        said = disk.stoker("add", "-q", "true")
        if said.code:
            refused = said
            break
        acknowledged.append(int(said.out))

    assert refused.code == 1
    assert refused.out == ""
    assert is_one_line(refused.err), refused
    assert "full" in refused.err
    disk.free()
    added = disk.stoker("add", "-q", "true")
    assert added.code == 0, added
    assert disk.stoker("wait").code == 0
    assert sorted(job["id"] for job in disk.jobs()) == [*acknowledged, int(added.out)]


def test_while_the_disk_is_full_verbs_answer_and_afterwards_all_is_recorded(
    home: Home, disk: SmallDisk
) -> None:
    go = home.work / "go"
    assert disk.stoker("daemon", "start", "--gpus", "0,1").code == 0
    line = f"until [ -e {go} ]; do sleep 0.01; done; exit 7"
    first = int(disk.stoker("add", "-q", line).out)
    more = disk.add(*(f"echo {n} >> {home.work}/ran" for n in range(30)))
    until(lambda: len(words_in(home.work / "ran")) == 30, "the others have run")
    later = disk.add(*(f"echo {n} >> {home.work}/ran2" for n in range(3)), gpus=2)
    disk.fill()
    go.touch()
    until(lambda: "space" in disk.stoker("status").out, "the daemon has said that it waits", 20.0)

    for words in (["ls"], ["status"], ["show", str(first)], ["log", "daemon"], ["config"]):
        said = disk.stoker(*words, timeout_s=10.0)
        assert said.code == 0, (words, said)
    for words in (
        ["add", "true"],
        ["kill", str(later[-1])],
        ["rm", str(more[0])],
        ["retry", str(more[1])],
    ):
        said = disk.stoker(*words, timeout_s=10.0)
        assert said.code == 1, (words, said)
        assert is_one_line(said.err), (words, said)
    disk.free()
    assert disk.stoker("wait", "--all").code == 1

    jobs = {job["id"]: job for job in disk.jobs()}
    assert jobs.keys() == {first, *more, *later}
    assert (jobs[first]["state"], jobs[first]["exit_code"]) == ("failed", 7)
    assert {jobs[job]["state"] for job in (*more, *later)} == {"done"}
    assert {job["attempt"] for job in jobs.values()} == {1}
    assert len((home.work / "ran2").read_text().split()) == 3


def test_a_daemon_killed_while_the_disk_is_full_loses_nothing(home: Home, disk: SmallDisk) -> None:
    go = home.work / "go"
    assert disk.stoker("daemon", "start", "--gpus", "0,1").code == 0
    line = f"echo x >> {home.work}/ran; until [ -e {go} ]; do sleep 0.01; done; exit 7"
    first = int(disk.stoker("add", "-q", line).out)
    second = int(disk.stoker("add", "-q", f"echo x >> {home.work}/ran; exit 3").out)
    until(lambda: len(words_in(home.work / "ran")) == 2, "both have begun")
    disk.fill()
    go.touch()
    daemon = int((disk.folder / "daemon.lock").read_text())
    os.kill(daemon, 9)
    until(lambda: not is_alive(daemon), "the daemon is dead")
    disk.stoker("ls")
    disk.free()
    assert disk.stoker("wait", "--all").code == 1
    until(lambda: "going on" in disk.stoker("status").out, "all is on record")

    jobs = {job["id"]: job for job in disk.jobs()}
    assert {job: each["exit_code"] for job, each in jobs.items()} == {first: 7, second: 3}
    assert (home.work / "ran").read_text().split() == ["x", "x"]


@pytest.mark.parametrize("disk", ["size=8k,mode=700"], indirect=True)
def test_a_disk_that_is_full_from_the_start_is_one_clear_line(disk: SmallDisk) -> None:
    said = disk.stoker("add", "true")

    assert said.code == 1
    assert is_one_line(said.err), said


def test_the_job_that_fills_the_disk_can_be_killed(home: Home, disk: SmallDisk) -> None:
    assert disk.stoker("daemon", "start", "--gpus", "0").code == 0
    line = f"trap '' TERM; yes > {home.path}/fill 2>&-; while :; do sleep 0.05; done"
    job = disk.stoker("add", "-q", line).out.strip()
    until(lambda: disk.stoker("add", "true").code == 1, "the disk is full")

    said = disk.stoker("kill", "--grace", "0.1s", job)

    assert said.code in (0, 1), said
    assert said.code == 0 or is_one_line(said.err), said
    until(lambda: "yes" not in " ".join(home.processes().values()), "it is dead")
    disk.free()
    assert disk.stoker("wait", job).code == 1
    assert [each["state"] for each in disk.jobs() if str(each["id"]) == job] == ["killed"]


def test_daemon_stop_with_kill_works_on_a_full_disk(home: Home, disk: SmallDisk) -> None:
    assert disk.stoker("daemon", "start", "--gpus", "0,1").code == 0
    jobs = [disk.stoker("add", "-q", "sleep 60").out.strip() for _ in range(2)]
    until(lambda: disk.stoker("status").out.count("running") >= 2, "both run")
    disk.fill()
    said = disk.stoker("daemon", "stop", "--kill")
    assert said.code == 0, said
    assert not [words for words in home.processes().values() if "1000" not in words]
    disk.free()
    assert disk.stoker("daemon", "start").code == 0
    assert disk.stoker("wait", "--all").code == 1

    states = {str(job["id"]): job["state"] for job in disk.jobs()}
    assert states.keys() == {*jobs}
    assert set(states.values()) <= {"killed", "lost", "failed"}


@pytest.mark.parametrize("disk", ["size=4M,nr_inodes=60,mode=700"], indirect=True)
def test_jobs_whose_logs_cannot_be_made_wait_for_space(home: Home, disk: SmallDisk) -> None:
    assert disk.stoker("daemon", "start", "--gpus", "0").code == 0
    assert disk.stoker("add", "true").code == 0
    assert disk.stoker("wait").code == 0
    with contextlib.suppress(OSError):
        for number in range(100):
            (disk.folder / f"hog{number}").touch()
    assert disk.stoker("add", "-q", f"echo $STOKER_ATTEMPT >> {home.work}/ran; exit 7").code == 0
    until(lambda: "cannot start" in disk.stoker("status").out, "the daemon has said that it waits")
    for path in disk.folder.glob("hog*"):
        path.unlink()

    assert disk.stoker("wait", "@").code == 1
    assert [(job["exit_code"], job["attempt"]) for job in disk.jobs() if job["id"] == 2] == [(7, 1)]
    assert (home.work / "ran").read_text() == "1\n"
