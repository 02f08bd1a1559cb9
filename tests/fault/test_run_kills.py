from __future__ import annotations

import os
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest

from fault.ledger import CLEAN
from patience import AT_ONCE_S

if TYPE_CHECKING:
    from conftest import Stoker
    from fault.conftest import Tell

ROUNDS = int(os.environ.get("STOKER_FAULT_ROUNDS", "4"))
LINES = 200
NAMES = 70  # so that most commands are there three times
LONGEST_S = 0.6
SLOTS = ["--gpus", "0,1,2"]


class Event(NamedTuple):
    """A line of the jobs' own record, which is written in the order of what happened."""

    what: str  # start, end, or kill: nothing that ran before is alive any more
    key: str = ""  # job.attempt
    slot: str = ""
    name: str = ""


class Tried(NamedTuple):
    """An attempt as the database has it."""

    job: int
    command: bytes
    attempt: int | None
    outcome: str | None


def command(name: str) -> str:
    told = f"$STOKER_JOB_ID.$STOKER_ATTEMPT $CUDA_VISIBLE_DEVICES {name}"
    return f'echo "start {told}" >> events; echo "end {told}" >> events'


def faults(lines: list[str], events: list[Event], tried: list[Tried]) -> list[str]:
    """All that is wrong with the history of a run that is over, in words."""
    return [
        *_faults_of_record(lines, tried),
        *_faults_of_starts(events, tried),
        *_faults_of_slots(events),
    ]


def _faults_of_record(lines: list[str], tried: list[Tried]) -> list[str]:
    done = [row for row in tried if row.outcome == "done"]
    found = []
    for job, times in Counter(row.job for row in done).items():
        if times > 1:
            found.append(f"job {job} has {times} recorded successes")
    known = Counter(row.command.decode() for row in done)
    for line, times in Counter(map(command, lines)).items():
        if (count := known.pop(line, 0)) != times:
            found.append(f"{count} recorded successes instead of {times} of: {line}")
    return found + [f"recorded, but never given: {line}" for line in known]


def _faults_of_starts(events: list[Event], tried: list[Tried]) -> list[str]:
    outcomes = {f"{row.job}.{row.attempt}": row.outcome for row in tried}
    started: set[str] = set()
    succeeded: set[str] = set()
    found = []
    for event in events:
        job = event.key.partition(".")[0]
        if event.what == "start":
            if event.key in started:
                found.append(f"attempt {event.key} started twice")
            if job in succeeded:
                found.append(f"job {job} ran again after a recorded success")
            started.add(event.key)
            if outcomes.get(event.key) == "done":
                succeeded.add(job)
    never = {key for key, outcome in outcomes.items() if outcome == "done"} - started
    return found + [f"attempt {key} succeeded and never ran" for key in sorted(never)]


def _faults_of_slots(events: list[Event]) -> list[str]:
    on: dict[str, str] = {}
    found = []
    for event in events:
        match event.what:
            case "kill":
                on.clear()
            case "start":
                if event.slot in on:
                    found.append(
                        f"{event.key} and {on[event.slot]} were on GPU {event.slot} at once"
                    )
                on[event.slot] = event.key
            case "end":
                on.pop(event.slot, None)
    return found


def recorded(stoker: Stoker) -> list[Tried]:
    """What the one run tells that got as far as to claim a command; nothing if none did."""
    found = [rows for folder in stoker.folders() if (rows := stoker.rows(folder))]
    assert len(found) < 2, "the run was begun anew, instead of resumed"
    return [Tried(r.job, r.command, r.attempt, r.outcome) for rows in found for r in rows]


def run_with_kills(stoker: Stoker, rng: random.Random) -> list[str]:
    """Run lines to the end, however often stoker is killed before."""
    lines = [f"n{rng.randrange(NAMES)}" for _ in range(LINES)]
    file = stoker.file("jobs.txt", "".join(command(line) + "\n" for line in lines))
    for _ in range(rng.randrange(1, 5)):
        process = stoker.start("run", file, *SLOTS, *(["--resume"] if recorded(stoker) else []))
        time.sleep(rng.uniform(0.05, LONGEST_S))  # not to wait for anything: to kill at any moment
        process.kill()
        process.wait()
        stoker.until(lambda: not stoker.processes(), "nothing is alive", deadline_s=AT_ONCE_S)
        with (stoker.work / "events").open("a") as events:
            events.write("kill\n")
    ended = stoker.run(file, *SLOTS, *(["--resume"] if recorded(stoker) else []))
    assert ended.code == 0, ended
    return lines


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_kills_at_any_moment_lose_nothing_and_double_nothing(
    stoker: Stoker, tell: Tell, seed: int
) -> None:
    lines = run_with_kills(stoker, random.Random(seed))

    events = [Event(*line.split()) for line in stoker.read("events")]
    tried = recorded(stoker)
    lost, twice = _faults_of_record(lines, tried), _faults_of_starts(events, tried)
    verdict = CLEAN._replace(lost=lost, twice=twice, overlaps=_faults_of_slots(events))
    tell("stoker run killed at any moment", 1, verdict)
    assert verdict.is_clean, verdict


class History:
    """A run without fault, to be doctored: `a`, `a` and `b` on one GPU, the first lost once."""

    def __init__(self) -> None:
        self.lines = ["a", "a", "b"]
        self.events = [Event("start", "1.1", "0", "a"), Event("kill")]
        self.tried = [Tried(1, command("a").encode(), 1, "lost")]
        for key, name in (("1.2", "a"), ("2.1", "a"), ("3.1", "b")):
            self.run(key, name)
            job, _, attempt = key.partition(".")
            self.tried.append(Tried(int(job), command(name).encode(), int(attempt), "done"))

    def run(self, key: str, name: str) -> None:
        self.events += [Event("start", key, "0", name), Event("end", key, "0", name)]

    def faults(self) -> list[str]:
        return faults(self.lines, self.events, self.tried)


def test_the_check_finds_no_fault_in_a_run_without() -> None:
    assert History().faults() == []


def test_the_check_catches_a_command_that_ran_again_after_its_success() -> None:
    history = History()
    history.run("3.2", "b")
    history.tried.append(Tried(3, command("b").encode(), 2, "lost"))

    assert history.faults() == ["job 3 ran again after a recorded success"]


def test_the_check_catches_an_attempt_that_started_twice() -> None:
    history = History()
    history.events.insert(0, history.events[0])
    history.events.insert(1, Event("kill"))

    assert history.faults() == ["attempt 1.1 started twice"]


def test_the_check_catches_a_second_success() -> None:
    history = History()
    history.run("3.2", "b")
    history.tried.append(Tried(3, command("b").encode(), 2, "done"))

    assert "job 3 has 2 recorded successes" in history.faults()


def test_the_check_catches_a_lost_command() -> None:
    history = History()
    history.tried.pop()

    assert history.faults() == [f"0 recorded successes instead of 1 of: {command('b')}"]


def test_the_check_catches_a_success_of_what_never_ran() -> None:
    history = History()
    del history.events[-2:]

    assert history.faults() == ["attempt 3.1 succeeded and never ran"]


def test_the_check_catches_two_jobs_on_one_slot() -> None:
    history = History()
    first_end = history.events.pop(3)
    history.events.insert(4, first_end)

    assert history.faults() == ["2.1 and 1.2 were on GPU 0 at once"]
