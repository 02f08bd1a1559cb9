"""A day in a queue's life: every verb is used, and whoever uses it asks again when a daemon dies."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

from fault.home import Home, is_alive, kill
from fault.ledger import FINAL, Verdict, expectations, judge, leaks
from fault.work import Batch, Expected, Work
from patience import until
from stoker.client.client import Client
from stoker.errors import ConflictError, NotFoundError, StokerError, UsageError
from stoker.wire import (
    Added,
    GpuOrder,
    Hold,
    Kill,
    Move,
    NewJob,
    NewSetting,
    Pause,
    Release,
    Remove,
    Resume,
    Retry,
)

T = TypeVar("T")
_PATIENCE_S = 30.0


class Day:
    """What was asked for, and what must have become of it in the evening."""

    def __init__(self, home: Home, work: Work) -> None:
        self._home = home
        self._work = work
        self._answers: list[tuple[Batch, Added]] = []
        self._removed: set[int] = set()
        self._stubborn = 0

    def begin(self, *arguments: str) -> None:
        """Start the daemon, as often as it takes."""
        deadline = time.monotonic() + _PATIENCE_S
        while self._home.daemon() is None:
            try:
                self._home.start(*arguments)
            except StokerError:
                if time.monotonic() > deadline:
                    raise

    def spend(self, is_orphan_seen: Callable[[], bool] = lambda: True) -> None:
        """Do everything that can be done with a queue.

        `is_orphan_seen` tells whether a supervisor has seen the end of a job that it had adopted. It may die
        at another place just before; each place kills once, so a few more tries are enough.
        """
        self.ask(lambda client: client.set_config(NewSetting(name="brake", value="0")))
        self.add_jobs()
        self.add_homeless()
        self.kill_a_job()
        self.lose_a_supervisor()
        while not is_orphan_seen():
            self.lose_a_supervisor()
        self.restart()
        self.retry_a_job()
        self.remove_jobs()
        self.steer()
        self.add_many_jobs()
        self.ask(lambda client: client.set_config(NewSetting(name="cpu.jobs", value="3")))
        self.wait()
        self.stop_everything()
        self.leave()

    def verdict(self, *, may_lose: bool) -> Verdict:
        """What has gone wrong."""
        self.wait()
        until(self._is_at_rest, "the GPUs are given back")
        expected = expectations(self._answers)
        attempts, events = self._home.attempts(), self._work.events()
        verdict = judge(expected, attempts, events, may_lose=may_lose, removed=self._removed)
        verdict.leaked.extend(leaks(self._home))
        return verdict

    def ask(self, action: Callable[[Client], T]) -> T:
        """Ask until there is an answer."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                with self._home.client() as client:
                    return action(client)
            except (UsageError, NotFoundError, ConflictError):
                raise
            except StokerError:
                if time.monotonic() > deadline:
                    raise

    def add(self, batch: Batch) -> int:
        """Add jobs; returns the first one's id."""
        (added,) = self.ask(lambda client: client.add(batch.submission))
        self._answers.append((batch, added))
        return added.first

    def add_jobs(self) -> None:
        """Add jobs of all kinds."""
        for size in (1, 12, 3, 8):
            self.add(self._work.batch(size))

    def add_homeless(self) -> None:
        """Add a job that cannot be started, until one was refused: a supervisor's death may lose it."""
        refused = False
        while not refused:
            homeless = self._work.submission([NewJob(command="true")], cwd="/nowhere")
            job = self.add(Batch(homeless, [None]))
            self.until(lambda job=job: self._home.state(job) in FINAL, "the job is over")  # type: ignore[misc]
            refused = self._home.state(job) == "failed"

    def add_many_jobs(self) -> None:
        """Add more than goes into one transaction."""
        jobs = [self._work.job(0, 0) for _ in range(510)]
        self.add(Batch(self._work.submission(jobs), [Expected(0, 1, 1)] * len(jobs)))

    def kill_a_job(self) -> None:
        """Kill one that ignores TERM."""
        job, pid = self.add_stubborn()
        self.ask(lambda client: client.kill(Kill(ids=str(job), grace_s=0.1)))
        self.until(lambda: not is_alive(pid), "the job that was killed is dead")

    def lose_a_supervisor(self) -> None:
        """Kill the supervisor while jobs run; one of them ends when the next supervisor watches it."""
        go = self._work.folder / f"go{len(self._answers)}"
        jobs = [self._work.job(300, 0) for _ in range(3)]
        wait = f"until [ -e {go} ]; do sleep 0.02; done"
        jobs.append(NewJob(command=f"{wait}; {self._work.line(0, 0)}"))
        first = self.add(Batch(self._work.submission(jobs), [None] * len(jobs)))
        for job in (first, first + 3):
            self.until(lambda job=job: self._has_begun(job), "the job has begun")  # type: ignore[misc]
        killed = set(self._home.supervisors())
        for pid in killed:
            kill(pid)

        def is_watched() -> bool:
            pids = self.ask(lambda client: client.status()).supervisor_pids
            return bool(pids) and killed.isdisjoint(pids)

        until(is_watched, "the next supervisor has taken over", _PATIENCE_S)
        go.touch()
        self.until(lambda: self._home.state(first + 3) in FINAL, "the job that was adopted is over")

    def restart(self) -> None:
        """Stop the daemon, and start another."""
        self.ask(lambda client: client.stop())
        until(lambda: self._home.daemon() is None, "the daemon has stopped")
        self.ask(lambda client: client.status())

    def retry_a_job(self) -> None:
        """Let a job that failed run once more."""
        job = self.add(Batch(self._work.submission([self._work.job(0, 3)]), [None]))
        self.until(lambda: self._home.state(job) in FINAL, "the job has failed")
        # Whether a request was heard whose answer is missing, its attempt tells.
        while self._attempt(job) < 2 and self._home.state(job) in FINAL:
            self.ask(lambda client: client.retry(Retry(ids=str(job))))
            self.until(lambda: self._home.state(job) in FINAL, "the job has failed again")

    def remove_jobs(self) -> None:
        """Forget a job that is over, and one that runs."""
        over = self.add(Batch(self._work.submission([self._work.job(0, 0)]), [None]))
        self.until(lambda: self._home.state(over) in FINAL, "the job is over")
        runs, pid = self.add_stubborn("-")
        for job in (over, runs):
            self._removed.add(job)
            self.ask(lambda client, job=job: self._remove(client, job))  # type: ignore[misc]
        self.until(lambda: not is_alive(pid), "the job that was removed is dead")

    def steer(self) -> None:
        """Hold jobs back, turn their order round, take a GPU out and put it back."""
        self.ask(lambda client: client.pause(Pause(queue=True)))
        batch = self._work.batch(5)
        first = self.add(batch)
        ids = f"{first}-{first + 4}"
        self.ask(lambda client: client.hold(Hold(ids=ids)))
        self.ask(lambda client: client.release(Release(ids=ids)))
        self.ask(lambda client: client.move(Move(job=str(first + 4))))
        with contextlib.suppress(
            ConflictError
        ):  # it was heard before, and only its answer is missing
            self.ask(lambda client: client.gpus(GpuOrder(action="drain", gpu="1")))
        with contextlib.suppress(ConflictError):
            self.ask(lambda client: client.gpus(GpuOrder(action="add", gpu="1")))
        with contextlib.suppress(ConflictError):
            self.ask(lambda client: client.resume(Resume(queue=True)))

    def _remove(self, client: Client, job: int) -> None:
        try:
            client.rm(Remove(ids=str(job), kill=True))
        except NotFoundError:
            return  # the first request was heard, and only its answer is missing

    def stop_everything(self) -> None:
        """Stop the daemon with all that runs."""
        _job, pid = self.add_stubborn()
        while is_alive(pid):
            self.ask(lambda client: client.stop(kill=True))
            until(lambda: self._home.daemon() is None, "the daemon has stopped", 20.0)

    def leave(self) -> None:
        """Stop the daemon with nothing to do: then its supervisor goes too."""
        for _ in range(2):  # the first one may die of something else
            self.ask(lambda client: client.status())
            self.wait()
            self.ask(lambda client: client.stop())
            until(lambda: not (self._home.daemon() or self._home.supervisors()), "all have gone")

    def add_stubborn(self, action: str = "''") -> tuple[int, int]:
        """A job without GPU that ignores TERM (or treats it so), and its pid once it does."""
        self._stubborn += 1
        file = self._work.folder / f"stubborn{self._stubborn}"
        line = f"trap {action} TERM; echo $$ > {file}.new; mv {file}.new {file}"
        jobs = [NewJob(command=f"{line}; while :; do sleep 0.05; done")]
        submission = self._work.submission(jobs, gpus=0)
        job = self.add(Batch(submission, [None]))
        self.until(file.exists, "the stubborn job has begun")
        return job, int(file.read_text())

    def wait(self) -> None:
        """Wait until nothing is left to do."""
        self.ask(lambda client: [*client.wait()])

    def until(self, fact: Callable[[], bool], what: str) -> None:
        """Wait for something, as a user would who looks at the queue now and then."""

        def look() -> bool:
            self.ask(lambda client: client.status())
            return fact()

        until(look, what, _PATIENCE_S)

    def _is_at_rest(self) -> bool:
        status = self.ask(lambda client: client.status())
        return not any(slot.held for slot in status.slots)

    def _has_begun(self, job: int) -> bool:
        live = {attempt.job: attempt for attempt in self._home.live()}
        return (job in live and live[job].pid is not None) or self._home.state(job) in FINAL

    def _attempt(self, job: int) -> int:
        return int(self._home.query(f"SELECT attempt FROM job WHERE id = {job}")[0][0])
