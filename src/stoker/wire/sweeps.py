"""Sweeps: drafts, plans, runs and results."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from stoker.core.failure import FailureClass
from stoker.core.job import ImageName, OnNan, ShortTime, WasteLimit
from stoker.core.lifecycle import State
from stoker.core.usage import AttemptUse
from stoker.wire.submission import Submission
from stoker.wire.values import (
    Bytes,
    Cpus,
    GpuMemory,
    Gpus,
    Name,
    NodeLabels,
    Priority,
    Ram,
    Retries,
    Share,
    Text,
)


class SweepsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits the number of sweeps."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50


class ResultsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names a sweep by its name and the folder that it was submitted from."""

    name: Name
    cwd: str


class SweepQuery(ResultsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects a page of the runs of a sweep: those of jobs after `after`."""

    after: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    params: bool = False


class CurveQuery(ResultsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names a sweep and metrics of its runs; `jobs` are some of its runs.

    The curves are over steps, or over the seconds since the first report of each run.
    """

    metric: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=50)]
    x: Literal["step", "time"] = "step"
    jobs: Annotated[list[int], msgspec.Meta(max_length=300)] = []


class SweepDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sweep as it is written: a command and `words` (`lr=1,2`), or a file's text in YAML or TOML.

    The fields beside the text replace those in the file.
    """

    text: Text
    cwd: str
    form: Literal["words", "yaml", "toml"] = "words"
    words: Annotated[list[str], msgspec.Meta(max_length=1000)] = []
    name: Name | None = None
    method: Literal["grid", "random", "tpe", "bayes"] | None = None
    metric: Name | None = None
    goal: Literal["minimize", "maximize"] | None = None
    samples: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] | None = None
    repeats: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    rerun: Literal["undone", "failed", "all", "none"] = "undone"


class SweepOrder(SweepDraft, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Queue the runs of a draft. The file's value counts for each option that is left out."""

    gpus: Gpus | None = None
    share: Share | None = None
    priority: Priority | None = None
    gpu_mem_bytes: GpuMemory | None = None
    cpus: Cpus | None = None
    mem_bytes: Ram | None = None
    nodes: list[Name] = []
    on: Name | None = None
    node_labels: NodeLabels = {}
    timeout: Annotated[str, msgspec.Meta(max_length=40)] | None = None
    retries: Retries | None = None
    image: ImageName | None = None
    on_nan: OnNan | None = None
    stall_s: WasteLimit | None = None
    idle_s: WasteLimit | None = None


class SearchOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Steer a sweep while it runs: choose its next runs by the results so far, stop runs early.

    `definition` has the keys of a sweep file, `words` override its parameters. `submission` has the options
    of all runs; its jobs do not count.
    """

    name: Name
    cwd: str
    definition: dict[str, Any]
    words: Annotated[list[str], msgspec.Meta(max_length=1000)] = []
    portable: bool = False
    submission: Submission


class SearchBegun(msgspec.Struct, frozen=True, kw_only=True):
    """An order was taken: `left` runs are still to be queued, `ended` have ended before."""

    left: int
    ended: int
    first: int | None = None  # its first job that has not ended
    notices: list[str] = []


class Prune(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stop runs of a sweep early: these jobs, or all that have not begun.

    A run learns it from `stoker.report`. It gets a signal if it has not ended after `grace_s`.
    """

    name: Name
    cwd: str
    jobs: Annotated[list[int], msgspec.Meta(max_length=10_000)] | None = None
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    grace_s: ShortTime = 30.0


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it would be queued."""

    id: str
    command: str
    params: dict[str, Any]


class SweepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a draft means: how many runs, how many of them are still to queue, and the first ones."""

    name: str
    count: int
    todo: int
    root: str
    varied: list[str]
    metric: str | None
    notes: list[str]
    runs: list[PlannedRun]


class SweepAdded(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a sweep's runs; `passed_over` runs are done, waiting or not selected."""

    name: str
    added: int
    passed_over: int
    first: int | None = None
    last: int | None = None


class SweepRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a sweep in the queue. A successful run stays known after its job is removed."""

    identity: str
    dir: Bytes
    job: int
    state: State
    attempt: int = 0
    slots: str | None = None
    reason: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    git_commit: str | None = None
    params: str | None = None  # JSON, if requested and still known
    failure: FailureClass | None = None
    gpu_use: AttemptUse | None = None


class SweepPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a sweep's runs, the oldest first; `next` is the cursor of the next page."""

    runs: list[SweepRun]
    next: int | None = None


class SweepInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep in a list. If it is `large`, `counts` covers only its newest runs."""

    name: str
    cwd: Bytes
    counts: dict[State, int]
    first: int
    last: int
    large: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run of a sweep: its parameters, and the metrics reported last."""

    job: int
    id: str
    state: State
    params: dict[str, Any]
    metrics: dict[str, Any]
    attempt: int = 0
    slots: str | None = None
    reason: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    failure: FailureClass | None = None
    problem: str | None = None


class SweepResults(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a sweep; `params` are those that vary, `left_out` counts older runs."""

    name: str
    cwd: str
    metric: str | None
    goal: Literal["minimize", "maximize"] | None
    params: list[str]
    fixed: dict[str, Any]
    metrics: list[str]
    runs: list[Outcome]
    left_out: int = 0


class CurvePoints(msgspec.Struct, frozen=True, kw_only=True):
    """What one run reported of a metric, thinned out if there are many points.

    A value that is NaN or infinite is null.
    """

    job: int
    metric: str
    xs: list[float]
    ys: list[float | None]
