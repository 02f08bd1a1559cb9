"""An older database is restored while the supervisor still runs jobs that this database does not know."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fault.ledger import CLEAN
from patience import until
from stoker.wire import Hold, NewJob, Pause, Release, Resume

if TYPE_CHECKING:
    from fault.conftest import Tell
    from fault.home import Home
    from fault.work import Work

# Says where it runs, waits for a file, and ends with a code of its own.
PATIENT = "echo begun on GPU $CUDA_VISIBLE_DEVICES; until [ -e {} ]; do sleep 0.02; done; exit 7"


class Backup:
    """A copy of a home's database."""

    def __init__(self, home: Home, folder: Path) -> None:
        self._home = home
        self._path = folder / "backup.db"

    def take(self) -> None:
        """Stop the daemon and copy the database; the daemon starts again."""
        self._home.stop()
        shutil.copy(self._home.folder / "stoker.db", self._path)
        self._home.start()

    def restore(self) -> None:
        """Stop the daemon and put the copy in the database's place; the daemon starts again."""
        self._home.stop()
        for path in self._home.folder.glob("stoker.db*"):
            path.unlink()
        shutil.copy(self._path, self._home.folder / "stoker.db")
        self._home.start()


@pytest.fixture
def backup(home: Home, work: Work, tmp_path: Path, tell: Tell) -> Backup:
    """Return a backup of a queue that has two GPUs and one finished job."""
    tell("restored database", 1, CLEAN)
    home.start("--gpus", "0,1")
    add(home, work, "true")
    with home.client() as client:
        [*client.wait()]
    return Backup(home, tmp_path)


def add(home: Home, work: Work, command: str) -> int:
    """Add a job that needs one GPU; its id."""
    with home.client() as client:
        (added,) = client.add(work.submission([NewJob(command=command)]))
        return added.first


def log_of(home: Home, job: int) -> str:
    """All that a job has printed."""
    with home.client() as client:
        return b"".join(client.log(job)).decode()


def gpu_of(home: Home, job: int) -> str:
    """The GPU a job runs on, by its own word."""
    text = until(lambda: log_of(home, job), f"job {job} has begun")
    return text.split()[-1]


def ended(home: Home, job: int) -> tuple[str, int | None]:
    """The last state of a job and its exit code, once it has ended."""

    def look() -> tuple[str, int | None] | None:
        with home.client() as client:
            found = client.show(job)
        is_over = found.state.value in ("done", "failed", "killed", "lost")
        return (found.state.value, found.exit_code) if is_over else None

    found = until(look, f"job {job} has ended")
    assert found is not None
    return found


def test_a_new_job_is_never_taken_for_one_that_the_database_lost(
    home: Home, work: Work, backup: Backup
) -> None:
    backup.take()
    go = work.folder / "go"
    lost = add(home, work, PATIENT.format(go))
    lost_gpu = gpu_of(home, lost)
    backup.restore()

    new = add(home, work, "echo new on GPU $CUDA_VISIBLE_DEVICES; exit 3")

    assert new != lost
    assert ended(home, new) == ("failed", 3)
    assert log_of(home, new) == f"new on GPU {1 - int(lost_gpu)}\n"
    [notice] = [text for text in home.status().notices if f"job {lost}" in text]
    assert "stoker.db" in notice
    assert f"job {lost}" in home.log()
    go.touch()


def test_a_gpu_stays_taken_until_the_job_that_the_database_lost_has_ended(
    home: Home, work: Work, backup: Backup
) -> None:
    backup.take()
    go = work.folder / "go"
    lost_gpu = gpu_of(home, add(home, work, PATIENT.format(go)))
    backup.restore()
    stay = work.folder / "stay"
    first = add(home, work, PATIENT.format(stay))
    second = add(home, work, "echo second on GPU $CUDA_VISIBLE_DEVICES")
    assert gpu_of(home, first) != lost_gpu

    def why() -> str:
        with home.client() as client:
            return str(client.why(second))

    until(lambda: "does not know" in why(), "the wait is explained")
    assert home.state(second) == "waiting"

    go.touch()

    assert ended(home, second) == ("done", 0)
    assert log_of(home, second) == f"second on GPU {lost_gpu}\n"
    stay.touch()
    assert ended(home, first) == ("failed", 7)


@pytest.mark.parametrize("ends_meanwhile", [False, True])
def test_an_attempt_of_a_job_that_the_database_knows_is_taken_up(
    home: Home, work: Work, backup: Backup, *, ends_meanwhile: bool
) -> None:
    with home.client() as client:
        client.pause(Pause(queue=True))
        (added,) = client.add(work.submission([NewJob(command=PATIENT.format(work.folder / "go"))]))
        job = added.first
        client.hold(Hold(ids=str(job)))
        client.resume(Resume(queue=True))
    backup.take()
    with home.client() as client:
        client.release(Release(ids=str(job)))
    gpu = gpu_of(home, job)
    if ends_meanwhile:
        home.stop()
        (work.folder / "go").touch()
        until(lambda: any(words[0] == "end" for words in home.journal()), "it has ended")
    backup.restore()

    if not ends_meanwhile:
        for _ in range(2):
            until(lambda: home.state(job) == "running", "the attempt is taken up")
            other = add(home, work, "echo other on GPU $CUDA_VISIBLE_DEVICES")
            assert ended(home, other) == ("done", 0)
            assert log_of(home, other) == f"other on GPU {1 - int(gpu)}\n"
            home.kill_daemon()
        (work.folder / "go").touch()

    assert ended(home, job) == ("failed", 7)
    assert log_of(home, job).count("begun") == 1
    with home.client() as client:
        assert client.show(job).attempt == 1


def test_an_attempt_that_the_database_knows_goes_on(home: Home, work: Work, backup: Backup) -> None:
    go = work.folder / "go"
    job = add(home, work, PATIENT.format(go))
    gpu = gpu_of(home, job)
    backup.take()
    backup.restore()
    second = add(home, work, "echo second on GPU $CUDA_VISIBLE_DEVICES")
    assert ended(home, second) == ("done", 0)
    assert log_of(home, second) != f"second on GPU {gpu}\n"

    go.touch()

    assert ended(home, job) == ("failed", 7)


def test_a_database_made_anew_gives_no_id_whose_log_exists(home: Home, work: Work) -> None:
    home.start("--gpus", "0")
    old = add(home, work, "echo old")
    assert ended(home, old) == ("done", 0)
    home.stop()
    for path in home.folder.glob("stoker.db*"):
        path.unlink()
    home.start("--gpus", "0")

    new = add(home, work, "echo new")

    assert ended(home, new) == ("done", 0)
    assert log_of(home, new) == "new\n"
