"""A little story that uses every verb which steers, with a daemon that dies between two of its steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import pytest

from fault.home import Home
from fault.ledger import CLEAN
from patience import until
from scale import LONG
from stoker.core.lifecycle import State
from stoker.wire import (
    GpuOrder,
    Hold,
    Move,
    NewJob,
    NewSetting,
    Pause,
    Preempt,
    Release,
    Resume,
    Retry,
    Set,
    Settings,
    Start,
    Submission,
)

if TYPE_CHECKING:
    from fault.conftest import Tell
    from stoker.client.client import Client

RAN = "echo $STOKER_JOB_ID.$STOKER_ATTEMPT >> ran"
# Counts on from where it was; leaves with a failure when it is asked to.
COUNTER = """
cd "$STOKER_SUBMIT_DIR"
file="$STOKER_CHECKPOINT_DIR/count"
trap 'exit 1' TERM
while [ ! -e finish ]; do
    n=$(cat "$file" 2>/dev/null || echo 0)
    echo $((n + 1)) > "$file.new" && mv "$file.new" "$file"
    sleep 0.02
done
"""


class Story:
    """The steps, and what must be true when all are done."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._client: Client
        self.steps: list[Callable[[], Any]] = [
            lambda: self.add("held", hold=True),
            lambda: self.add("bad", f"{RAN}; test -e mended"),
            lambda: self.add("needy", after="bad"),
            lambda: self.add("needier", after="needy"),
            lambda: self.do("release", Release(ids="held")),
            lambda: self.until_state("held", State.DONE),
            lambda: self.until_state("needier", State.SKIPPED),
            lambda: self.do("pause", Pause(queue=True)),
            *(lambda name=name: self.add(name, gpus=2) for name in ("one", "two", "three")),
            lambda: self.do("hold", Hold(ids="two")),
            lambda: self.do("move", Move(job="three")),
            lambda: self.do("set", Set(ids="one", to=Settings(priority=5, timeout_s=100.0))),
            lambda: self.do("release", Release(ids="two")),
            lambda: self.do("resume", Resume(queue=True)),
            lambda: self.until_state("two", State.DONE),
            lambda: self.add("counter", COUNTER, preemptible=True),
            lambda: self.until_count(3),
            lambda: self.do("pause", Pause(ids="counter")),
            self.see_that_it_stands_still,
            lambda: self.do("resume", Resume(ids="counter")),
            lambda: self.until_count(self.count() + 3),
            lambda: self.do("preempt", Preempt(ids="counter")),
            lambda: self.until_attempt("counter", 2),
            lambda: self.add("pusher", gpus=2, preempt=True),
            lambda: self.until_state("pusher", State.DONE),
            lambda: self.do("gpus", GpuOrder(action="drain", gpu="1")),
            lambda: self.add("later", begin_at=time.time() + 3600, gpus=0),
            lambda: self.do("start", Start(ids="later")),
            lambda: self.do("gpus", GpuOrder(action="add", gpu="1")),
            lambda: self.do("set_config", NewSetting(name="limit.p", value="1")),
            lambda: self.do("pause", Pause(queue=True, project="p")),
            lambda: self.add("projected", project="p"),
            lambda: self.do("resume", Resume(queue=True, project="p")),
            lambda: (home.work / "mended").touch(),
            lambda: self.do("retry", Retry(ids="bad")),
            lambda: (home.work / "finish").touch(),
        ]

    def play(self, deaths: Collection[int]) -> None:
        """Do all steps; the daemon dies before each of these."""
        self._home.start("--gpus", "0,1")
        with self._home.client() as self._client:
            for number, step in enumerate(self.steps):
                if number in deaths:
                    assert self._home.kill_daemon()
                step()
            if len(self.steps) in deaths:
                assert self._home.kill_daemon()
            list(self._client.wait())
            self.check()

    def check(self) -> None:
        """See that everything has come as it should, and each thing once."""
        jobs = {job.name: job for job in self._client.jobs()}
        assert {name: job.state for name, job in jobs.items()} == dict.fromkeys(jobs, State.DONE)
        assert len(jobs) == 11
        ids = {job.id: name for name, job in jobs.items()}
        ran = (self._home.work / "ran").read_text().split()
        names = [
            (ids[int(job)], int(attempt)) for job, _, attempt in (k.partition(".") for k in ran)
        ]
        assert len(names) == len({*names}), f"something ran twice: {names}"
        order = [name for name, _attempt in names if name in ("one", "two", "three")]
        assert order == ["one", "three", "two"]
        assert [attempt for name, attempt in names if name == "bad"] == [1, 2]
        attempts = self._client.show("counter").attempts
        assert [each.state.value for each in attempts] == ["preempted", "preempted", "done"]
        pusher = jobs["pusher"].id
        told = ["preempted by request", f"preempted by job {pusher}", None]
        assert [each.reason for each in attempts] == told
        status = self._client.status()
        assert (status.queue_paused, status.projects_paused) == (None, {})
        assert [(slot.label, slot.drained, slot.jobs) for slot in status.slots] == [
            ("0", None, []),
            ("1", None, []),
        ]

    def add(self, name: str, line: str = RAN, **common: Any) -> None:
        """Add a job."""
        jobs = [NewJob(command=line, name=name, script=line is COUNTER)]
        self._client.add(
            Submission(request_id="", jobs=jobs, cwd=str(self._home.work), env={}, **common)
        )

    def do(self, verb: str, order: Any) -> None:
        """Ask for something; nothing of it may be refused."""
        # What changes something is not asked for twice by itself: first see that somebody listens.
        self._client.status()
        answer = getattr(self._client, verb)(order)
        assert not getattr(answer, "refused", None), answer

    def until_state(self, name: str, state: State) -> None:
        """Wait until a job is where it should be."""
        until(lambda: self._client.show(name).state is state, f"{name} is {state.value}", 20.0)

    def until_attempt(self, name: str, number: int) -> None:
        """Wait until a job runs once more."""
        until(lambda: self._client.show(name).attempt == number, f"{name}, attempt {number}", 20.0)

    def until_count(self, number: int) -> None:
        """Wait until the counter has come so far."""
        until(lambda: self.count() >= number, f"a count of {number}")

    def count(self) -> int:
        """How far the counter has come."""
        job = self._client.show("counter").id
        try:
            return int((self._home.folder / "checkpoints" / "0" / str(job) / "count").read_text())
        except FileNotFoundError:
            return 0

    def see_that_it_stands_still(self) -> None:
        """Look twice at the counter."""
        assert self._client.show("counter").state is State.PAUSED
        pid = self._client.show("counter").attempts[-1].pid
        until(lambda: _is_stopped(pid or 0), "it is stopped")
        before = self.count()
        time.sleep(0.1)
        assert self.count() == before


def _is_stopped(pid: int) -> bool:
    """Whether a process stands still; also one that waits for a child which was stopped before its exec."""
    with open(f"/proc/{pid}/stat") as file:
        state = file.read().rpartition(")")[2].split()[0]
    if state != "D":
        return state == "T"
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        children = file.read().split()
    return bool(children) and all(_is_stopped(int(child)) for child in children)


STEPS = 38
# One death in each story, in every place; else one story with a death before every fourth step.
DEATHS = [(), *((step,) for step in range(1, STEPS + 1))] if LONG else [range(1, STEPS + 1, 4)]


@pytest.mark.parametrize("deaths", DEATHS, ids=lambda deaths: " ".join(map(str, deaths)))
def test_a_death_between_any_two_steps_changes_nothing(
    home: Home, tell: Tell, deaths: Collection[int]
) -> None:
    tell("daemon killed between two steps of steering", len(deaths), CLEAN)
    story = Story(home)
    assert len(story.steps) == STEPS

    story.play(deaths)
