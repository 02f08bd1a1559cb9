"""The work of the fault tests: tiny jobs of many kinds that write down when they start and end."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import uuid
from pathlib import Path
from typing import NamedTuple

from stoker.client.client import Client
from stoker.errors import StokerError
from stoker.wire import Added, NewJob, Submission

SLOTS = 4


class Expected(NamedTuple):
    """What is to become of a job."""

    status: int
    gpus: int
    attempts: int


class Batch(NamedTuple):
    """A submission, and what is to become of each of its jobs."""

    submission: Submission
    expected: list[Expected | None]


class Event(NamedTuple):
    """A line of the jobs' own record."""

    what: str  # start or end
    key: str  # job.attempt
    gpus: str
    pid: int
    at_us: int
    seat: int  # how many others were on its GPU, or on the fullest of several
    host: str = ""
    rivals: int = 0  # how many other attempts of its job were alive


def build_job(folder: Path) -> str:
    """Compile the tiny job."""
    program = folder / "job"
    source = os.path.join(os.path.dirname(__file__), "job.c")
    subprocess.run(["gcc", "-O1", "-o", program, source], check=True)
    return str(program)


class Work:
    """Makes submissions, and reads what their jobs have written down."""

    def __init__(self, program: str, folder: Path, rng: random.Random) -> None:
        self._program = program
        self._rng = rng
        self.folder = folder
        self.record = folder / "record"

    def batches(self, jobs: int, largest: int = 40, most_gpus: int = 3) -> list[Batch]:
        """That many jobs in submissions of mixed size and kind."""
        found = []
        while jobs:
            size = min(jobs, self._rng.choice((1, 1, 3, largest // 4, largest)))
            found.append(self.batch(size, most_gpus))
            jobs -= size
        return found

    def batch(self, size: int, most_gpus: int = 3) -> Batch:
        """A submission of jobs that ask for the same, and end in several ways."""
        rng = self._rng
        gpus = min(most_gpus, rng.choices((1, 0, 2, 3), (70, 15, 10, 5))[0])
        retries = rng.choices((0, 2), (90, 10))[0]
        jobs: list[NewJob] = []
        expected: list[Expected | None] = []
        for _ in range(size):
            ms = self._duration_ms()
            code = rng.choices((0, 1, 7, 255, -9, -15), (80, 8, 4, 4, 2, 2))[0]
            jobs.append(self.job(ms, code))
            status = -code if code < 0 else code << 8
            expected.append(Expected(status, gpus, 1 + (retries if status else 0)))
        return Batch(self.submission(jobs, gpus=gpus, retries=retries), expected)

    def _duration_ms(self) -> int:
        """Mostly less than a daemon takes to start; some jobs outlive one that was killed."""
        kind = self._rng.random()
        if kind < 0.03:
            return self._rng.randrange(400, 900)
        return 0 if kind < 0.3 else self._rng.randrange(50)

    def job(self, ms: int, code: int) -> NewJob:
        """A job that takes so long and ends so, started in one of the ways there are."""
        words = [self._program, str(self.record), str(ms), str(code)]
        line = " ".join(words)
        match self._rng.randrange(4):
            case 0:
                return NewJob(command=[*words])
            case 1 if code >= 0:
                return NewJob(command=f"{line[: -len(words[3])]} 0; exit {code}")
            case 2:
                return NewJob(command=f"exec {line}\n", script=True)
            case _:
                return NewJob(command=line)

    def hidden_job(self, ms: int, code: int) -> NewJob:
        """A job that drops its environment and every descriptor it was started with."""
        keep = "STOKER_JOB_ID=$STOKER_JOB_ID STOKER_ATTEMPT=$STOKER_ATTEMPT"
        keep += " CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"
        close = (
            "for fd in /proc/self/fd/*; do fd=${fd##*/}; [ $fd -lt 3 ] || eval exec $fd'>&-'; done"
        )
        line = f"{self._program} {self.record} {ms} {code}"
        return NewJob(command=["bash", "-c", f"{close}; exec env -i {keep} {line}"])

    def line(self, ms: int, code: int, saved: Path | None = None) -> str:
        """The command line of a tiny job; with `saved`, a TERM ends it once that file exists."""
        return " ".join(map(str, [self._program, self.record, ms, code, *filter(None, [saved])]))

    def submission(
        self,
        jobs: list[NewJob],
        *,
        gpus: int = 1,
        retries: int = 0,
        timeout_s: float | None = None,
        grace_s: float = 10.0,
        linger: bool = False,
        cwd: str | None = None,
    ) -> Submission:
        """Jobs, ready to be sent."""
        return Submission(
            request_id=uuid.UUID(int=self._rng.getrandbits(128)).hex,
            jobs=jobs,
            cwd=cwd or str(self.folder),
            env={"PATH": os.environ["PATH"], "STOKER_TEST_HOME": os.environ["STOKER_TEST_HOME"]},
            gpus=gpus,
            retries=retries,
            timeout_s=timeout_s,
            grace_s=grace_s,
            linger=linger,
        )

    def events(self) -> list[Event]:
        """What the jobs have written down, in the order in which it happened."""
        return read_events(self.record)


def read_events(record: Path) -> list[Event]:
    """What jobs have written down."""
    try:
        lines = record.read_text().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        what, key, gpus, pid, at_us, seat, host, rivals = line.split()
        found.append(Event(what, key, gpus, int(pid), int(at_us), int(seat), host, int(rivals)))
    return found


class Submitter(threading.Thread):
    """Sends submissions, each until it is answered, as the allowance of jobs permits."""

    def __init__(self, home: str, batches: list[Batch]) -> None:
        super().__init__(daemon=True)
        self._home = home
        self._batches = batches
        self._allowed = threading.Semaphore(0)
        self.answers: list[tuple[Batch, Added]] = []
        self.interrupted = 0
        self.failure: BaseException | None = None

    def allow(self, jobs: int) -> None:
        """Let so many more jobs be sent."""
        self._allowed.release(jobs)

    def run(self) -> None:
        """Send everything."""
        try:
            with Client(self._home, start=True) as client:
                for batch in self._batches:
                    for _ in batch.expected:
                        self._allowed.acquire()
                    self.answers.append((batch, self._send(client, batch.submission)))
        except BaseException as error:
            self.failure = error

    def _send(self, client: Client, submission: Submission) -> Added:
        while True:
            try:
                (added,) = client.add(submission)
            except StokerError:
                self.interrupted += 1  # the daemon was killed: the same request goes again
            else:
                return added
