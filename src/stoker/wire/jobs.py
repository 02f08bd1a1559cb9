"""Jobs as the daemon reports them: in lists, in detail, and while a client waits for them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from stoker.core.failure import FailureClass
from stoker.core.job import Ending, Options
from stoker.core.lifecycle import State
from stoker.core.usage import AttemptUse
from stoker.core.wait_reason import SlotCell
from stoker.core.waste import Waste
from stoker.wire.changes import Selection
from stoker.wire.submission import Git
from stoker.wire.values import Bytes, UnixTime


class JobQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names one job as typed: an id, `@`, a name, `project/name`."""

    job: str


class LsQuery(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects a page of jobs: `after` is the `next` of the page before.

    Without `sort`, running jobs come first, then waiting jobs in their order, then ended jobs, the latest
    first. Sorted by `name`, jobs without a name come last. `ended` has those that have ended, the latest
    first, `longest` those that took longest, of the running ones and the 5,000 that ended last. `gpu` is one
    that they run or ran on. `text` occurs in the name or in the command. With `strict`, an unknown project
    is an error.
    """

    text: str | None = None
    gpu: str | None = None
    strict: bool = False
    sort: Literal["oldest", "newest", "name", "ended", "longest"] | None = None
    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class CountsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects the jobs to count, as in LsQuery; by default all."""

    project: str | None = None
    text: str | None = None
    gpu: str | None = None


class JobMark(msgspec.Struct, frozen=True, kw_only=True):
    """How a running job wastes its GPU, since when, and the evidence."""

    kind: Waste
    since: float
    text: str


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a list."""

    id: int
    name: str | None
    project: str | None
    state: State
    command: str
    gpus: int
    priority: int
    attempt: int
    slots: str | None
    reason: str | None
    exit_code: int | None
    signal: int | None
    submitted_at: float | None
    started_at: float | None
    ended_at: float | None
    begin_at: float | None = None
    failure: FailureClass | None = None
    ends_at: float | None = None  # of a running job: estimated from others of its kind
    reserved_bytes: int | None = None  # of a job that shares a GPU: the memory reserved for it
    capped: bool = False  # it cannot use more memory than reserved; else the limit is best effort
    gpu_bytes: int | None = None  # of a running job: the GPU memory that it used last
    mark: JobMark | None = None  # of a running job
    cwd: Bytes = ""
    nodes: list[str] = []  # it runs on one of these nodes,
    on: str | None = None  # on GPUs whose model's name has this part,
    node_labels: dict[str, str] = {}  # on nodes with all of these labels


class AttemptInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a job."""

    number: int
    state: State
    slots: str | None
    pid: int | None
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    signal: int | None
    reason: str | None
    cpu_s: float | None
    max_rss_bytes: int | None
    log: Bytes | None
    reserved_bytes: int | None = None
    failure: FailureClass | None = None
    gpu_use: AttemptUse | None = None


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """A job that another job waits for: for its success or, with `any`, for its end."""

    id: int
    state: State | None
    any: bool


class JobOptions(Options, frozen=True, kw_only=True, omit_defaults=False):
    """The options of a job, with the default values written out."""


class SweepName(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep: its name and the folder that it was submitted from."""

    name: str
    cwd: Bytes


class JobDetail(Job, frozen=True, kw_only=True):
    """Everything about a job; secrets in the environment are hidden."""

    argv: list[Bytes] | None
    line: Bytes | None
    script: bool
    shell: str | None
    env: dict[str, str]
    timeout_s: float | None
    retries: int
    share: str | None
    gpu_mem_bytes: int | None
    cpus: int | None
    mem_bytes: int | None
    git: Git | None
    snapshot: str | None
    user: str | None
    host: str | None
    last_line: str | None
    log: Bytes | None
    needs: list[Need]
    options: JobOptions
    attempts: list[AttemptInfo]
    sweep: SweepName | None = None  # the sweep that it is a run of
    reserved_because: str | None = None  # of a running job: where that amount of memory comes from
    ending: Ending | None = None  # how the running attempt is being ended, if it is


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs; `next` is the cursor of the next page."""

    jobs: list[Job]
    next: str | None = None


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The reason for a job's state, in one sentence.

    For a job that waits for GPUs, `gpus` says for each GPU that it may use what keeps it off, and `ahead`
    how many jobs are before it in the queue.
    """

    id: int
    state: State
    text: str
    gpus: list[SlotCell] = []
    ahead: int | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the jobs that a client waits for are in each state, and how many are `left`.

    Once none is left, `took_s` is the time that the named jobs took: from the first start to the last end,
    without anything before a pause in which none of them ran. For `unfinished` jobs, `since` and `last` are
    the moment and the newest job that define them.
    """

    counts: dict[State, int]
    left: int
    took_s: float | None = None
    since: float | None = None
    last: int | None = None


class TimelineQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects attempts that ended after this time, and those that run."""

    since: UnixTime = 0.0


class TimelineAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt on GPUs: on which slots and when. One that runs has an expected end, if that is known."""

    job: int
    attempt: int
    name: str | None
    project: str | None
    state: State
    slots: list[str]
    started_at: float
    ended_at: float | None = None
    expected_end_at: float | None = None


class TimelinePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The expected run of a waiting job."""

    job: int
    name: str | None
    project: str | None
    slots: list[str]
    start_at: float
    end_at: float


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """What was, is and is expected to be on the GPUs. `left_out`: there were more attempts."""

    now: float
    attempts: list[TimelineAttempt]
    planned: list[TimelinePlan]
    left_out: bool = False
