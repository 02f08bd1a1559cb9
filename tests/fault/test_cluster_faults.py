"""A queue over three boxes through forty faults: nothing is lost, and nothing runs twice at once.

Jobs tell what they do themselves, because the record may be wrong.
"""

from __future__ import annotations

import importlib.util
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from cluster.cluster_fixture import Lab
from cluster.conftest import require_hosts
from cluster.netns_hosts import Hosts
from fault.conftest import Tell
from fault.home import Attempt
from fault.ledger import Verdict, judge
from fault.saboteur import SEEN_WITHIN_S, Saboteur
from fault.table import say
from fault.work import Event, Expected, read_events
from scale import long_only

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not installed: pip install 'stoker[ray]'",
    ),
    pytest.mark.timeout(3600),
    long_only,
]
JOBS = 2000
SHORTEST_MS, LONGEST_MS = 50, 300
KINDS = (
    *("raylet", "agent", "supervisor", "daemon", "bridge", "ray_supervisor", "cut 4 s", "power off")
    * 2,
    *("cut 60 s", "raylet of the head", "supervisor", "agent"),
    *("gcs of the head", "ray_supervisor of the head", "power off the head", "restart"),
    *("helpers", "full disk", "firewall", "clock") * 3,
    *("gcs of the head", "head off 60 s", "upgrade", "upgrade"),
)
# A start that a node reports while its time of day is set is known by the boot clocks, to some milliseconds.
CLOCK_ERROR_US = 100_000
# Trains for as long as the faults last: a step takes longer than two looks at its checkpoints.
SAVERS = 2
STEP_S = 45
_SAVER = """\
file=$STOKER_CHECKPOINT_DIR/step
step=$(cat "$file" 2>/dev/null || echo 0)
echo "begin $STOKER_JOB_ID $STOKER_ATTEMPT $step" >>{record}
while [ ! -e {go} ]; do
  if [ $((waited = ${{waited:-0}} + 1)) -ge {step_s} ]; then
    waited=0 step=$((step + 1))
    echo $step >"$file.new" && mv "$file.new" "$file"
    echo "step $STOKER_JOB_ID $STOKER_ATTEMPT $step" >>{record}
  fi
  sleep 1
done
echo "end $STOKER_JOB_ID $STOKER_ATTEMPT $step" >>{record}
"""
_ATTEMPTS = """
SELECT job, number, outcome, slots, pid, started_at_us, ended_at_us, status, reason
  FROM earlier_attempt
UNION ALL SELECT id, attempt, state, slots, pid, started_at_us, ended_at_us, status, reason FROM job
ORDER BY 1, 2
"""


class Step(NamedTuple):
    """A line of a job that saves checkpoints: begin, step or end, and the last step that it has."""

    what: str
    job: int
    attempt: int
    step: int


@pytest.fixture
def saboteur(nvml_library: str) -> Iterator[Saboteur]:
    """Return what does harm to a cluster of three boxes."""
    require_hosts()
    with Hosts(hosts=3, library=nvml_library) as hosts:
        saboteur = Saboteur(hosts, random.Random(10))
        yield saboteur
        say(saboteur.lab.notices()[-6000:])


def own_label(event: Event) -> Event:
    """With its GPU as it is on record."""
    return event._replace(gpus=f"{event.host}/{event.gpus}")


def judge_all(lab: Lab, jobs: int) -> Verdict:
    """What is wrong, by what jobs wrote and by what is on record; jobs that save checkpoints come first."""
    attempts = [Attempt(*row) for row in lab.query(_ATTEMPTS)]
    attempts = [attempt for attempt in attempts if attempt.job > SAVERS]
    events = [own_label(event) for event in read_events(lab.path("record"))]
    expected: dict[int, Expected | None] = {
        n: Expected(0, 1, 1) for n in range(SAVERS + 1, SAVERS + jobs + 1)
    }
    verdict = judge(expected, attempts, events, may_lose=True, clock_error_us=CLOCK_ERROR_US)
    done = Counter(attempt.job for attempt in attempts if attempt.state == "done")
    verdict.lost.extend(f"job {job} has not succeeded" for job in expected if not done[job])
    verdict.twice.extend(f"job {job} succeeded {n} times" for job, n in done.items() if n > 1)
    for host in range(3):
        left = [w for w in lab.hosts.processes(host).values() if str(lab.path("record")) in w]
        verdict.leaked.extend(f"h{host} still runs {words}" for words in left)
    return verdict


def repeated(events: list[Event]) -> dict[int, int]:
    """Return the jobs that started again after an attempt that had ended by itself, and that attempt."""
    ended: dict[int, int] = {}
    found = {}
    for event in events:
        job, attempt = map(int, event.key.split("."))
        if event.what == "end":
            ended[job] = min(attempt, ended.get(job, attempt))
        elif attempt > ended.get(job, attempt):
            found[job] = ended[job]
    return found


def reasons(lab: Lab, again: dict[int, int]) -> Counter[str]:
    """Return what is on record about attempts that had ended by themselves and were repeated."""
    rows = lab.query("SELECT job, number, outcome, status, reason FROM earlier_attempt")
    return Counter(
        f"{outcome}, {reason or status}"
        for job, number, outcome, status, reason in rows
        if again.get(job) == number
    )


def lost_steps(lab: Lab) -> list[str]:
    """Return the attempts that began with fewer steps than the one before had saved, but for its last two.

    What was saved within the last looks at a running job's checkpoints may not have left the node.
    """
    last: dict[int, int] = defaultdict(int)
    found = []
    for line in lab.path("steps").read_text().splitlines():
        what, *numbers = line.split()
        step = Step(what, *map(int, numbers))
        if step.what == "begin" and step.step < last[step.job] - 2:
            found.append(
                f"attempt {step.job}.{step.attempt} began at {step.step} of {last[step.job]}"
            )
        last[step.job] = step.step
    return found


def add_savers(lab: Lab) -> None:
    """Add jobs that save checkpoints until the end."""
    script = lab.path("saver")
    script.write_text(_SAVER.format(record=lab.path("steps"), go=lab.path("go"), step_s=STEP_S))
    for job in range(1, SAVERS + 1):
        assert lab.add(f"sh {script}", "--share", "never", "--retries", "99") == job


def test_faults_of_all_kinds_lose_nothing_and_double_nothing_over_three_boxes(
    saboteur: Saboteur, job_program: str, tell: Tell
) -> None:
    rng = random.Random(11)
    lab = saboteur.lab
    kinds = list(KINDS)
    rng.shuffle(kinds)
    share = -(-JOBS // len(kinds))
    record, lines = lab.path("record"), lab.path("lines")
    add_savers(lab)
    finishing: set[int] = set()
    for number, kind in enumerate(kinds):
        saboteur.go_on()
        work = [rng.randrange(SHORTEST_MS, LONGEST_MS) for _ in range(share)]
        lines.write_text("".join(f"{job_program} {record} {ms} 0\n" for ms in work))
        on_cut = "finish" if number % 2 else "stop"
        lab.ok(
            "add",
            "-q",
            "--share",
            "never",
            "--retries",
            "9",
            "--on-cut",
            on_cut,
            "--batch",
            str(lines),
        )
        if on_cut == "finish":
            first = SAVERS + number * share + 1
            finishing |= {*range(first, first + share)}
        saboteur.strike(kind)
    saboteur.make_good()
    lab.path("go").touch()
    lab.until_over()

    verdict = judge_all(lab, share * len(kinds))
    again = repeated(read_events(record))
    slowest_ms = round(1000 * max(saboteur.seen_s, default=0.0))
    attempts = lab.query("SELECT count(*) FROM earlier_attempt")[0][0]
    details = {
        **saboteur.done,
        "attempts that were lost and made again": attempts,
        "finished runs repeated, --on-cut stop": len(again.keys() - finishing),
        "finished runs repeated, --on-cut finish": len(again.keys() & finishing),
        **{f"of these, {reason}": n for reason, n in reasons(lab, again).items()},
        "ms, seen": slowest_ms,
    }
    tell("cluster of three boxes", len(kinds), verdict, **details)
    assert len(kinds) == 40
    assert verdict.is_clean, f"{verdict}\n{lab.notices()[-3000:]}"
    assert {lab.state(saver) for saver in range(1, SAVERS + 1)} == {"done"}
    assert lost_steps(lab) == []
    assert slowest_ms <= 1000 * SEEN_WITHIN_S, saboteur.seen_s
    # A supervisor, or its machine, may die between a job's last word and its end. A cut repeats nothing.
    finished = {job: number for job, number in again.items() if job in finishing}
    assert not [reason for reason in reasons(lab, finished) if "cut off" in reason]
