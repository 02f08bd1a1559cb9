"""What must be true of a queue's history, whatever was killed meanwhile."""

from __future__ import annotations

import fcntl
import os
import time
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from fault.home import Attempt, Home
from fault.work import Batch, Event, Expected
from stoker.wire import Added

_GIVEN_BACK_WITHIN_S = 5.0
FINAL = ("done", "failed", "killed", "lost")


class Verdict(NamedTuple):
    """All that is wrong, in words, by the kind of wrong.

    `overlaps` are of jobs that met on a GPU; what only the record says of them is `untrue`.
    """

    lost: list[str]
    twice: list[str]
    overlaps: list[str]
    leaked: list[str]
    stranded: list[str]
    untrue: list[str]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not any(self)

    def __str__(self) -> str:
        return "\n".join(
            f"{name}: {len(found)}: {'; '.join(found[:5])}"
            for name, found in zip(self._fields, self, strict=True)
            if found
        )


CLEAN = Verdict([], [], [], [], [], [])


def expectations(answers: Iterable[tuple[Batch, Added]]) -> dict[int, Expected | None]:
    """What is to become of each job that was acknowledged."""
    found: dict[int, Expected | None] = {}
    for batch, added in answers:
        ids = range(added.first, added.last + 1)
        assert len(ids) == len(batch.expected), (added, len(batch.expected))
        for job, expected in zip(ids, batch.expected, strict=True):
            assert job not in found, f"job {job} was given out twice"
            found[job] = expected
    return found


def judge(
    expected: Mapping[int, Expected | None],
    attempts: list[Attempt],
    events: list[Event],
    *,
    may_lose: bool = False,
    removed: Container[int] = (),
    per_gpu: int = 1,
    clock_error_us: int = 0,
) -> Verdict:
    """Compare what was asked for with the record and with what the jobs themselves wrote down.

    A job of which nothing is expected may end in any way. With `may_lose`, any may be LOST, as the
    second promise has it, but never run twice. What was removed is on record no more. So many slots
    as `per_gpu` share each GPU. Recorded times are of clocks that differ by `clock_error_us` at most.
    """
    last = {attempt.job: attempt for attempt in attempts}
    verdict = Verdict([], [], [], [], [], [])
    for job in expected.keys() - last.keys():
        if job not in removed:
            verdict.lost.append(f"job {job} was acknowledged and is not there")
    for job in last.keys() - expected.keys():
        verdict.twice.append(f"job {job} is there and was never acknowledged")
    for attempt in last.values():
        if attempt.state not in FINAL:
            verdict.stranded.append(f"job {attempt.job} is {attempt.state}")
    _judge_ends(expected, attempts, verdict, may_lose=may_lose)
    _judge_starts(attempts, events, verdict, removed)
    verdict.overlaps.extend(
        f"{event.key} met {event.seat} others on GPU {event.gpus}"
        for event in events
        if event.what == "start" and event.seat >= per_gpu
    )
    verdict.untrue.extend(_overlaps_on_record(attempts, per_gpu, clock_error_us))
    return verdict


def _judge_ends(
    expected: Mapping[int, Expected | None],
    attempts: list[Attempt],
    verdict: Verdict,
    *,
    may_lose: bool,
) -> None:
    numbers: dict[int, list[int]] = defaultdict(list)
    for attempt in attempts:
        wanted = expected.get(attempt.job)
        if wanted is None or attempt.state not in FINAL:
            continue
        numbers[attempt.job].append(attempt.number)
        if attempt.state == "lost":
            if not may_lose:
                verdict.lost.append(f"the end of {attempt.key} is not known: {attempt.reason}")
        elif attempt.status != wanted.status:
            verdict.untrue.append(
                f"{attempt.key} ended with status {attempt.status}, not {wanted.status}"
                f" ({attempt.state}: {attempt.reason})"
            )
        elif (attempt.state == "done") != (wanted.status == 0):
            verdict.untrue.append(f"{attempt.key} is {attempt.state} with status {attempt.status}")
    for job, found in numbers.items():
        wanted = expected[job]
        if wanted and found != [*range(1, wanted.attempts + 1)] and not may_lose:
            verdict.untrue.append(f"job {job} has attempts {found}")


def _judge_starts(
    attempts: list[Attempt], events: list[Event], verdict: Verdict, removed: Container[int]
) -> None:
    started = Counter(event.key for event in events if event.what == "start")
    ended = Counter(event.key for event in events if event.what == "end")
    for key, times in started.items():
        if times > 1:
            verdict.twice.append(f"attempt {key} started {times} times")
    verdict.twice.extend(
        f"{event.key} met {event.rivals} other attempts of its job"
        for event in events
        if event.what == "start" and event.rivals
    )
    known = {attempt.key: attempt for attempt in attempts}
    for key in started.keys() - known.keys():
        if int(key.partition(".")[0]) not in removed:
            verdict.twice.append(f"attempt {key} ran and is not on record")
    for key, attempt in known.items():
        if attempt.state == "done" and not ended[key]:
            verdict.untrue.append(f"attempt {key} is done, and never came to its end")
    for event in events:
        label = known[event.key].slots if event.key in known else None
        if label is not None and event.gpus != (label or "-"):
            verdict.untrue.append(f"{event.key} saw GPU {event.gpus}, and is recorded on {label}")


def _overlaps_on_record(attempts: list[Attempt], per_gpu: int, clock_error_us: int) -> list[str]:
    """Times on record, told by the supervisor: no slot has more attempts at once than it may."""
    spans: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for attempt in attempts:
        if attempt.started_at_us is not None and attempt.ended_at_us is not None:
            for slot in filter(None, (attempt.slots or "").split(",")):
                until_us = attempt.ended_at_us - clock_error_us
                spans[slot].append((attempt.started_at_us, until_us, attempt.key))
    found = []
    for slot, all_spans in spans.items():
        there: list[tuple[int, int, str]] = []
        for span in sorted(all_spans):
            there = [each for each in there if each[1] > span[0]]
            if len(there) >= per_gpu:
                found.append(f"{there[-1][2]} and {span[2]} are recorded on GPU {slot} at once")
            there.append(span)
    return found


def leaks(home: Home) -> list[str]:
    """What stays held although nothing runs any more; what is just being given back is no leak."""
    deadline = time.monotonic() + _GIVEN_BACK_WITHIN_S
    while (found := _held(home)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def _held(home: Home) -> list[str]:
    status, lease_folder = home.status(), home.lease_folder
    found = [f"slot {slot.label} holds {slot.jobs}" for slot in status.slots if slot.jobs]
    found += [f"slot {slot.label} is leased" for slot in status.slots if slot.held]
    found += [f"slot {slot.label} is closed: {slot.closed}" for slot in status.slots if slot.closed]
    names = os.listdir(lease_folder) if os.path.isdir(lease_folder) else ()
    for name in (name for name in names if name.startswith("gpu-")):  # others are turn files
        with open(os.path.join(lease_folder, name), "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(f"the lease {name} is held")
    counts = dict(home.query("SELECT state, count(*) FROM job GROUP BY state"))
    told = {state.value: count for state, count in status.counts.items() if count}
    if counts != told:
        found.append(f"the tally says {told}, and there are {counts}")
    known: dict[str, list[str]] = {}
    for words in home.journal():
        if words[0] == "ack":
            known.pop(words[1], None)
        elif words[0] != "boot":
            known[words[1]] = words
    return found + [f"the supervisor keeps {' '.join(words)}" for words in known.values()]
