"""The daemon is killed again and again, at any moment: nothing is lost, nothing is doubled."""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from fault.home import kill
from fault.ledger import Verdict, expectations, judge, leaks
from fault.moments import Moment, histogram, moment_of
from fault.table import say
from fault.work import SLOTS, Batch, Submitter, Work
from patience import until
from scale import LONG
from stoker.errors import StokerError

if TYPE_CHECKING:
    from fault.conftest import Tell
    from fault.home import Home

JOBS, KILLS, SEEDS = (10_000, 1000, 3) if LONG else (80, 8, 1)
FEW_KILLS = 100 if LONG else 3
SUBMITTERS = 3
LONGEST_UP_S = 0.06
IN_START_UP = 0.1
LONGEST_START_UP_S = 0.4

pytestmark = pytest.mark.timeout(1800 if LONG else 120)


class Killer:
    """Kills daemons, and notes at which moments they died."""

    def __init__(self, home: Home, rng: random.Random) -> None:
        self._home = home
        self._rng = rng
        self.moments: Counter[Moment] = Counter()

    def kill_once(self) -> None:
        """See to it that there is a daemon, and kill it a moment later."""
        rng, home = self._rng, self._home
        if rng.random() < IN_START_UP:
            with ThreadPoolExecutor() as pool:
                pool.submit(self._ask)
                until(home.daemon, "a daemon has been started")
                time.sleep(rng.uniform(0.0, LONGEST_START_UP_S))
                self._strike()
        else:
            while not self._ask():
                pass
            time.sleep(rng.uniform(0.0, LONGEST_UP_S))  # to kill at any moment
            self._strike()

    def _ask(self) -> bool:
        try:
            self._home.status()
        except StokerError:
            return False
        return True

    def _strike(self) -> None:
        if self.kill():
            self.moments[self._look()] += 1

    def kill(self) -> bool:
        """Kill the daemon; False if there was none."""
        return self._home.kill_daemon()

    def _look(self) -> Moment:
        killed_at_us = time.time_ns() // 1000
        journal = self._home.journal()
        ((waiting,),) = self._home.query("SELECT count(*) FROM job WHERE state = 'waiting'")
        return moment_of(killed_at_us, self._home.live(), waiting, journal)


class Butcher(Killer):
    """Kills the daemon, or its supervisor, or both."""

    def kill(self) -> bool:
        """Kill at least one of them."""
        kind = self._rng.random()
        supervisors = self._home.supervisors() if kind < 0.4 else []
        found = [kill(pid) for pid in supervisors]
        return any(found) if kind < 0.2 else super().kill()


class Run:
    """Submits and runs jobs while daemons are killed."""

    def __init__(self, home: Home, work: Work, batches: list[Batch], kills: int) -> None:
        self._home = home
        self._work = work
        self._kills = kills
        self._total = sum(len(batch.expected) for batch in batches)
        self._submitters = [
            Submitter(home.path, batches[number::SUBMITTERS]) for number in range(SUBMITTERS)
        ]

    def endure(self, killer: Killer) -> None:
        """Kill as often as is wanted; work is always under way."""
        for submitter in self._submitters:
            submitter.start()
            submitter.allow(self._total // 20)
        while (done := sum(killer.moments.values())) < self._kills:
            if done % 100 == 0:
                say(f"{done} of {self._kills} kills")
            for submitter in self._submitters:
                submitter.allow(max(1, self._total // SUBMITTERS // self._kills))
            killer.kill_once()
        for submitter in self._submitters:
            submitter.allow(self._total)
            submitter.join(60)
            assert submitter.failure is None, submitter.failure
            assert not submitter.is_alive()

    def judge(self, *, per_gpu: int = 1, may_lose: bool = False) -> Verdict:
        """Wait until everything is over, and judge it."""
        answers = [answer for submitter in self._submitters for answer in submitter.answers]
        home = self._home
        with home.client() as client:
            for _progress in client.wait():
                pass
            for batch, added in answers[::7]:
                (again,) = client.add(batch.submission)
                assert (again.first, again.last, again.repeated) == (added.first, added.last, True)
        until(lambda: not any(slot.held for slot in home.status().slots), "the GPUs are given back")
        expected, events = expectations(answers), self._work.events()
        attempts = home.attempts()
        verdict = judge(expected, attempts, events, per_gpu=per_gpu, may_lose=may_lose)
        verdict.leaked.extend(leaks(home))
        return verdict


@pytest.mark.parametrize("seed", range(SEEDS))
def test_kills_at_any_moment_lose_nothing_and_double_nothing(
    home: Home, job_program: str, tell: Tell, seed: int
) -> None:
    rng = random.Random(seed)
    work = Work(job_program, home.work, rng)
    killer = Killer(home, rng)
    batches = work.batches(JOBS, largest=40 if LONG else 12)
    if LONG:
        batches.insert(len(batches) // 3, work.batch(1200))
    home.start("--gpus", ",".join(map(str, range(SLOTS))))
    home.disable_failure_limit()
    run = Run(home, work, batches, KILLS)

    run.endure(killer)
    verdict = run.judge()

    details = {moment.value: killer.moments[moment] for moment in Moment}
    tell("daemon killed at any moment", KILLS, verdict, **details)
    assert verdict.is_clean, f"{verdict}\n{home.log()[-3000:]}"
    between = sum(count for moment, count in killer.moments.items() if moment.is_between)
    assert between >= KILLS // 2, histogram(killer.moments)


def test_kills_at_any_moment_while_two_jobs_share_each_gpu(
    home: Home, job_program: str, tell: Tell
) -> None:
    rng = random.Random(0)
    work = Work(job_program, home.work, rng)
    home.start("--gpus", "0,0,1,1")
    home.disable_failure_limit()
    run = Run(home, work, work.batches(10 * FEW_KILLS, most_gpus=1), FEW_KILLS)

    run.endure(Killer(home, rng))
    verdict = run.judge(per_gpu=2)

    tell("daemon killed at any moment, two jobs a GPU", FEW_KILLS, verdict)
    assert verdict.is_clean, f"{verdict}\n{home.log()[-3000:]}"


def test_kills_of_daemons_and_supervisors_at_any_moment_double_nothing(
    home: Home, job_program: str, tell: Tell
) -> None:
    rng = random.Random(0)
    work = Work(job_program, home.work, rng)
    home.start("--gpus", ",".join(map(str, range(SLOTS))))
    home.disable_failure_limit()
    run = Run(home, work, work.batches(10 * FEW_KILLS), FEW_KILLS)

    run.endure(Butcher(home, rng))
    verdict = run.judge(may_lose=True)

    tell("daemon, supervisor or both killed at any moment", FEW_KILLS, verdict)
    assert verdict.is_clean, f"{verdict}\n{home.log()[-3000:]}"
