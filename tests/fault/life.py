"""A hostile life of a queue: clients use random verbs while random processes are killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fault.home import Home, kill
from fault.ledger import FINAL, Verdict, expectations, judge, leaks
from fault.work import Batch, read_events
from patience import until
from stoker.client.client import Client
from stoker.core.lifecycle import State
from stoker.errors import ConflictError, NotFoundError, StokerError, UsageError
from stoker.wire import (
    Added,
    GpuOrder,
    Hold,
    Kill,
    Move,
    NewJob,
    Pause,
    Preempt,
    Release,
    Remove,
    Resume,
    Retry,
    Set,
    Settings,
    Start,
    Submission,
)

GPUS = 4
_PATIENCE_S = 60.0
_BACKLOG = 60  # with more jobs waiting, clients add none: verbs should meet jobs that run
# How a job ends that TERM or KILL has ended, or a shell in which they have ended it.
_BY_SIGNAL = (9, 15, (128 + 9) << 8, (128 + 15) << 8)
_REFUSALS = (ConflictError, NotFoundError, UsageError)


class Plan(NamedTuple):
    """What a job was told to do."""

    code: int  # its exit code; a negative one is the signal it ends itself with
    gpus: int


class Story:
    """What the clients were told, shared by their threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.answers: list[tuple[Batch, Added]] = []
        self.plans: dict[int, Plan] = {}
        self.disturbed: set[int] = set()  # jobs that a verb or a fault may have ended
        self.removed: set[int] = set()
        self.operations: Counter[str] = Counter()
        self.refused = 0

    def note_added(self, batch: Batch, added: Added, plans: list[Plan]) -> None:
        """Remember an acknowledged submission."""
        with self._lock:
            self.answers.append((batch, added))
            self.plans.update(
                zip(range(added.first, added.last + 1), plans, strict=True),
            )

    def pick(self, rng: random.Random) -> int | None:
        """An acknowledged job, mostly one of the last; None before the first."""
        with self._lock:
            ids = sorted(self.plans)
        if not ids:
            return None
        return rng.choice(ids[-20:]) if rng.random() < 0.8 else rng.choice(ids)


class LifeClient(threading.Thread):
    """One client that uses random verbs until it is told to stop; every submission is sent until answered."""

    def __init__(self, home: Home, program: str, story: Story, seed: int) -> None:
        super().__init__(daemon=True)
        self._home = home
        self._program = program
        self._story = story
        self._rng = random.Random(seed)
        self._over = threading.Event()
        self.failure: BaseException | None = None
        self._verbs: list[tuple[int, str, Callable[[Client], object]]] = [
            (30, "add", self._add),
            (6, "add again", self._add_again),
            (8, "kill", self._kill),
            (5, "retry", lambda c: c.retry(Retry(ids=self._job()))),
            (3, "rm", self._remove),
            (3, "hold", lambda c: c.hold(Hold(ids=self._job()))),
            (4, "release", lambda c: c.release(Release(all=True))),
            (3, "pause", lambda c: c.pause(Pause(ids=self._job()))),
            (5, "resume", lambda c: c.resume(Resume(states=[State.PAUSED]))),
            (1, "pause queue", lambda c: c.pause(Pause(queue=True))),
            (3, "resume queue", lambda c: c.resume(Resume(queue=True))),
            (3, "start", lambda c: c.start(Start(ids=self._job()))),
            (6, "preempt", self._preempt),
            (3, "move", lambda c: c.move(Move(job=self._job()))),
            (3, "set", self._set_priority),
            (1, "drain", lambda c: c.gpus(GpuOrder(action="drain", gpu=self._gpu()))),
            (2, "gpus add", lambda c: c.gpus(GpuOrder(action="add", gpu=self._gpu()))),
            (3, "ls", lambda c: c.ls(limit=50)),
            (2, "show", lambda c: c.show(self._job())),
            (2, "why", lambda c: c.why(self._job())),
            (2, "log", lambda c: [*c.log(self._job())]),
            (2, "status", lambda c: c.status()),
        ]

    def run(self) -> None:
        """Use verbs until `stop`."""
        weights = [weight for weight, _name, _verb in self._verbs]
        try:
            while not self._over.is_set():
                _weight, name, verb = self._rng.choices(self._verbs, weights)[0]
                self._story.operations[name] += 1
                self._use(verb)
        except BaseException as error:
            self.failure = error

    def stop(self) -> None:
        """Use no further verb."""
        self._over.set()

    def _use(self, verb: Callable[[Client], object]) -> None:
        try:
            with self._home.client() as client:
                verb(client)
        except _REFUSALS:
            self._story.refused += 1
        except StokerError:
            pass  # the daemon was killed: whether the verb took effect is not known

    def _job(self, *, disturb: bool = False) -> str:
        job = self._story.pick(self._rng)
        if job is not None and disturb:
            self._story.disturbed.add(job)
        return "1" if job is None else str(job)

    def _gpu(self) -> str:
        return str(self._rng.randrange(GPUS))

    def _kill(self, client: Client) -> None:
        grace_s = self._rng.choice((None, 0.0, 0.3))
        client.kill(Kill(ids=self._job(disturb=True), grace_s=grace_s))

    def _preempt(self, client: Client) -> None:
        client.preempt(Preempt(ids=self._job(disturb=True)))

    def _set_priority(self, client: Client) -> None:
        priority = self._rng.randrange(-3, 4)
        client.set(Set(ids=self._job(), to=Settings(priority=priority)))

    def _remove(self, client: Client) -> None:
        job = self._job(disturb=True)
        self._story.removed.add(int(job))
        client.rm(Remove(ids=job, kill=self._rng.random() < 0.5))

    def _add_again(self, _client: Client) -> None:
        if self._story.answers:
            batch, added = self._rng.choice(self._story.answers)
            if added.first not in self._story.removed:
                answer = self._send(batch.submission)
                assert (answer.first, answer.last) == (added.first, added.last), (answer, added)

    def _add(self, client: Client) -> None:
        if client.status().counts.get(State.WAITING, 0) > _BACKLOG:
            return
        rng = self._rng
        gpus = rng.choices((0, 1, 2), (10, 75, 15))[0]
        made = [self._new_job(gpus) for _ in range(rng.choice((1, 1, 2, 5)))]
        batch = Batch(
            Submission(
                request_id=uuid.UUID(int=rng.getrandbits(128)).hex,
                jobs=[job for job, _plan in made],
                cwd=str(self._home.work),
                env={"PATH": os.environ["PATH"], "STOKER_TEST_HOME": self._home.path},
                gpus=gpus,
                retries=rng.choice((0, 0, 0, 1)),
                priority=rng.choice((0, 0, 1)),
                preemptible=rng.random() < 0.3,
                grace_s=rng.choice((0.5, 2.0)),
            ),
            [None] * len(made),
        )
        added = self._send(batch.submission)
        self._story.note_added(batch, added, [plan for _job, plan in made])

    def _send(self, submission: Submission) -> Added:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                with self._home.client() as client:
                    (added,) = client.add(submission)
            except _REFUSALS:
                raise
            except StokerError:
                if time.monotonic() > deadline:
                    raise
            else:
                return added

    def _new_job(self, gpus: int) -> tuple[NewJob, Plan]:
        """A job of one of many kinds: short or long, saving on TERM, with a leftover, in a shell."""
        rng = self._rng
        code = rng.choices((0, 1, 7, -9), (80, 10, 7, 3))[0]
        ms = rng.choices((0, 20, 150, 800), (25, 35, 30, 10))[0]
        save_ms = rng.choice((0, 0, 100, 400))
        leftover_ms = rng.choices((0, 300, 20_000), (80, 17, 3))[0]
        record = self._home.work / "record"
        words = [self._program, str(record), str(ms), str(code), str(save_ms), str(leftover_ms)]
        line = " ".join(words)
        command = rng.choice(
            [line, f"cd . && {line}; exit $?", f"bash -c 'set -o pipefail; {line} | cat'"]
        )
        if command == line:
            return NewJob(command=[*words]), Plan(code, gpus)
        return NewJob(command=command), Plan(code if code >= 0 else 128 - code, gpus)


class Chaos:
    """Kills processes of a home at random."""

    def __init__(self, home: Home, story: Story, seed: int) -> None:
        self._home = home
        self._story = story
        self._rng = random.Random(seed)
        self.faults: Counter[str] = Counter()

    def strike(self) -> None:
        """Do one fault."""
        faults: list[tuple[int, str, Callable[[], object]]] = [
            (35, "daemon killed", self._home.kill_daemon),
            (20, "supervisor killed", self._kill_supervisors),
            (10, "daemon and supervisor killed", self._kill_both),
            (10, "daemon stopped", self._home.stop),
            (10, "first process of a job killed", self._kill_job),
            (10, "daemon frozen for a moment", self._freeze_daemon),
            (5, "socket removed", self._remove_socket),
        ]
        _weight, name, fault = self._rng.choices(faults, [weight for weight, *_ in faults])[0]
        with contextlib.suppress(StokerError):
            fault()
        self.faults[name] += 1

    def _kill_supervisors(self) -> None:
        for pid in self._home.supervisors():
            kill(pid)

    def _kill_both(self) -> None:
        self._kill_supervisors()
        self._home.kill_daemon()

    def _kill_job(self) -> None:
        live = [attempt for attempt in self._home.live() if attempt.pid]
        if live:
            attempt = self._rng.choice(live)
            self._story.disturbed.add(attempt.job)
            assert attempt.pid is not None
            environ = Path(f"/proc/{attempt.pid}/environ")
            with contextlib.suppress(OSError):  # it has ended, or its pid is another's by now
                if self._home.path.encode() in environ.read_bytes():
                    kill(attempt.pid)

    def _freeze_daemon(self) -> None:
        pid = self._home.daemon()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self._rng.uniform(0.0, 0.3))  # the fault itself: a daemon that is late
                os.kill(pid, signal.SIGCONT)

    def _remove_socket(self) -> None:
        (self._home.folder / "stoker.sock").unlink(missing_ok=True)


class Life:
    """Four clients and one source of faults on one queue."""

    def __init__(self, home: Home, program: str, seed: int, clients: int = 4) -> None:
        self._home = home
        self.story = Story()
        self.chaos = Chaos(home, self.story, seed)
        self._clients = [
            LifeClient(home, program, self.story, 1000 * seed + number) for number in range(clients)
        ]

    def live(self, operations: int, faults: int, goes_on: Callable[[], bool]) -> None:
        """Let the clients use so many verbs among so many faults, and go on while `goes_on`."""
        for client in self._clients:
            client.start()
        gap = operations // faults
        while self._done() < operations or goes_on():
            aim = self._done() + gap
            until(lambda aim=aim: self._done() >= aim or self._failed(), "the clients work")  # type: ignore[misc]
            if self._failed():
                break
            self.chaos.strike()
        for client in self._clients:
            client.stop()
        for client in self._clients:
            client.join(2 * _PATIENCE_S)
            assert not client.is_alive(), "a client hangs"
            if client.failure is not None:
                raise client.failure

    def settle(self) -> None:
        """Let everything that waits run to its end; fail if nothing changes for a minute."""
        for gpu in range(GPUS):
            order = GpuOrder(action="add", gpu=str(gpu))
            self._ask(lambda client, order=order: client.gpus(order))  # type: ignore[misc]
        last = self._left()
        deadline = time.monotonic() + _PATIENCE_S
        while (left := self._left()) and time.monotonic() < deadline:
            self._let_go_on()
            if left != last:
                last, deadline = left, time.monotonic() + _PATIENCE_S
            time.sleep(0.05)
        assert not left, self._explain(left)
        until(
            lambda: not any(slot.held for slot in self._home.status().slots),
            "the GPUs are given back",
        )

    def verdict(self) -> Verdict:
        """What has gone wrong."""
        attempts = self._home.attempts()
        verdict = judge(
            expectations(self.story.answers),
            attempts,
            read_events(self._home.work / "record"),
            may_lose=True,
            removed=self.story.removed,
        )
        for attempt in attempts:
            plan = self.story.plans[attempt.job]
            if (wrong := _untrue_status(attempt.state, attempt.status, plan)) is not None:
                disturbed = attempt.job in self.story.disturbed and attempt.status in _BY_SIGNAL
                if not disturbed:
                    verdict.untrue.append(f"{attempt.key}: {wrong} ({attempt.reason})")
        verdict.leaked.extend(leaks(self._home))
        return verdict

    def _let_go_on(self) -> None:
        """Undo every pause and hold; jobs that fail alike pause the queue again."""
        self._ask(lambda client: client.resume(Resume(queue=True)))
        self._ask(lambda client: client.release(Release(states=[State.HELD])))
        self._ask(lambda client: client.resume(Resume(states=[State.PAUSED])))

    def _left(self) -> list[tuple[int, str]]:
        over = ", ".join(f"'{state}'" for state in (*FINAL, "skipped"))
        return self._home.query(f"SELECT id, state FROM job WHERE state NOT IN ({over})")

    def _explain(self, left: list[tuple[int, str]]) -> str:
        """Why jobs are not over."""
        with self._home.client() as client:
            reasons = [f"{job} ({state}): {client.why(job).text}" for job, state in left[:10]]
        return f"{len(left)} jobs are not over: {'; '.join(reasons)}\n{self._home.log()[-2000:]}"

    def _ask(self, action: Callable[[Client], object]) -> None:
        with contextlib.suppress(*_REFUSALS), self._home.client() as client:
            action(client)

    def _done(self) -> int:
        return sum(self.story.operations.values())

    def _failed(self) -> bool:
        return any(client.failure is not None for client in self._clients)


def _untrue_status(state: str, status: int | None, plan: Plan) -> str | None:
    """What is wrong with a recorded end; None if it can be true of an undisturbed job."""
    expected = -plan.code if plan.code < 0 else plan.code << 8
    if state == "lost" or status is None:
        return None
    if status != expected:
        return f"recorded with status {status}, told to end with {expected}"
    if (state == "done") != (expected == 0) and state in ("done", "failed"):
        return f"recorded as {state} with status {status}"
    return None
