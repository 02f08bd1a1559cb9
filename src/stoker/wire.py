"""The words that client and daemon exchange; the OpenAPI document is made from these types.

Commands, paths and environments are bytes: on the wire a string, or `{"b64": …}` where no text can
say them. Times are seconds of the Unix epoch.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

import msgspec

from stoker.core.failure import FailureClass
from stoker.core.job import MAX_NAME, Options, ShortTime
from stoker.core.lifecycle import State
from stoker.core.usage import AttemptUse, Foreigner, GpuUse, JobUse

MAX_JOBS = 100_000
MAX_TEXT = 16 * 2**20
MAX_PRIORITY = 1_000_000
MAX_GPUS = 1024
MAX_RETRIES = 1000
MAX_POSITION = 2**53


class Base64(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that are no valid UTF-8."""

    b64: str


Bytes = str | Base64
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Gpus = Annotated[int, msgspec.Meta(ge=0, le=MAX_GPUS)]
Priority = Annotated[int, msgspec.Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
Retries = Annotated[int, msgspec.Meta(ge=0, le=MAX_RETRIES)]
TimeLimit = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[str, msgspec.Meta(pattern="^(auto|never|free|always:[1-9][0-9]?)$")]
GpuMemory = Annotated[int, msgspec.Meta(ge=2**20, le=2**50)]
NodeLabels = dict[Name, Annotated[str, msgspec.Meta(max_length=MAX_NAME)]]
Moment = Annotated[float, msgspec.Meta(ge=0, le=1e11)]


def to_wire(data: bytes) -> Bytes:
    """Bytes as they go over the wire."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return Base64(base64.b64encode(data).decode("ascii"))


def from_wire(value: Bytes) -> bytes:
    """Bytes as they were; raises ValueError where the base64 is none."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return base64.b64decode(value.b64, validate=True)


class NewRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What makes a job a run of a sweep: who it is, the folder that is its own, its parameters."""

    identity: Annotated[str, msgspec.Meta(min_length=64, max_length=64)]  # hexadecimal
    dir: Bytes
    params: str  # JSON, as params.json will hold it


class NewJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One job of a submission: a shell line, the words of a command, or a whole script."""

    command: Bytes | list[Bytes]
    script: bool = False
    name: Name | None = None
    log: Bytes | None = None
    run: NewRun | None = None


class Git(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which code it was."""

    commit: Annotated[str, msgspec.Meta(max_length=64)]
    dirty: bool


class Submission(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs and what they have in common. The same request id twice is one submission."""

    request_id: Annotated[str, msgspec.Meta(min_length=8, max_length=64)]
    jobs: Annotated[list[NewJob], msgspec.Meta(min_length=1, max_length=MAX_JOBS)]
    cwd: Bytes
    env: dict[str, str] = msgspec.field(default_factory=dict)
    env_b64: str | None = None  # further NAME=value entries, each ending in NUL, that are no text
    shell: str | None = None
    project: Name | None = None
    name: Name | None = None
    sweep: Name | None = None  # what its runs belong to, together with the folder cwd
    log: Bytes | None = None
    gpus: Gpus = 1
    share: Share | None = None
    gpu_mem_bytes: GpuMemory | None = None
    nodes: list[Name] = msgspec.field(default_factory=list)  # on one of these
    on: Name | None = None  # on GPUs of this kind: a part of the model's name, such as a100
    # On a node that has all of these.
    node_labels: NodeLabels = msgspec.field(default_factory=dict)
    priority: Priority = 0
    timeout_s: TimeLimit | None = None
    retries: Retries = 0
    linger: bool = False
    hold: bool = False
    after: str | None = None
    after_any: str | None = None
    begin_at: Moment | None = None
    git: Git | None = None
    snapshot: Annotated[str, msgspec.Meta(max_length=4096)] | None = None  # ID or ID/sub/folder
    user: Annotated[str, msgspec.Meta(max_length=MAX_NAME)] | None = None
    # Whoever asks has no environment of its own, as a page: the daemon's counts, below `env`, and it
    # looks for the folder before it takes the jobs.
    by_page: bool = False

    @property
    def options(self) -> Options:
        """The fields that the store keeps as they are."""
        return Options(**{name: getattr(self, name) for name in Options.__struct_fields__})


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """The ids that a submission got, first to last; `repeated` if it had them already."""

    first: int
    last: int
    repeated: bool = False
    notice: str | None = None


class Selection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs are meant: `ids` as typed (`1,2,5-9`, `@`, names), or by state or project, or all."""

    ids: str | None = None
    states: list[State] = []
    project: str | None = None
    all: bool = False


class WaitFor(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs are waited for; with `unfinished` those that wait or run now, not those that are held.

    `since` and `last` of a Progress, sent along, mean what waited or ran then.
    """

    unfinished: bool = False
    since: Moment | None = None
    last: Annotated[int, msgspec.Meta(ge=0, le=MAX_POSITION)] | None = None


class Hold(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Let jobs that have not begun wait until they are released."""


class Release(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Let held jobs go on."""


class Pause(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stop running jobs where they are; with `queue` start nothing more (of a project) instead."""

    queue: bool = False


class Resume(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Let stopped jobs go on; with `queue` let the queue (or a project's part of it) go on."""

    queue: bool = False


class Start(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Let jobs start as the very next, whatever holds them back but GPUs that are taken.

    With `queue` only look at once for what can start.
    """

    queue: bool = False


class Preempt(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Let running jobs make room: they are asked to stop, and wait again."""


class Move(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Put a waiting job at a position of the queue; 1 is the next to start.

    Or just before, or just behind, another one that waits: then the position does not count.
    """

    job: str
    position: Annotated[int, msgspec.Meta(ge=1, le=MAX_POSITION)] = 1
    before: str | None = None
    behind: str | None = None


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job stands now; `notice` if that took another priority over."""

    id: int
    position: int
    notice: str | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job asks for, as far as it is to be changed."""

    name: Name | msgspec.UnsetType | None = msgspec.UNSET
    project: Name | msgspec.UnsetType | None = msgspec.UNSET
    command: Bytes | msgspec.UnsetType = msgspec.UNSET
    log: Bytes | msgspec.UnsetType | None = msgspec.UNSET
    after: str | msgspec.UnsetType | None = msgspec.UNSET
    after_any: str | msgspec.UnsetType | None = msgspec.UNSET
    begin_at: Moment | msgspec.UnsetType | None = msgspec.UNSET
    timeout_s: TimeLimit | msgspec.UnsetType | None = msgspec.UNSET
    gpus: Gpus | msgspec.UnsetType = msgspec.UNSET
    retries: Retries | msgspec.UnsetType = msgspec.UNSET
    share: Share | msgspec.UnsetType | None = msgspec.UNSET
    gpu_mem_bytes: GpuMemory | msgspec.UnsetType | None = msgspec.UNSET
    nodes: list[Name] | msgspec.UnsetType | None = msgspec.UNSET
    on: Name | msgspec.UnsetType | None = msgspec.UNSET
    node_labels: NodeLabels | msgspec.UnsetType | None = msgspec.UNSET
    priority: Priority | msgspec.UnsetType = msgspec.UNSET


class Set(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change jobs that have not begun; of those that run only name, priority, retries, time limit."""

    to: Settings


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job stands where it stands, in one sentence."""

    id: int
    state: State
    text: str


class GpuOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change a slot: `add` it (or use it again), `drain` it, or `remove` it."""

    action: Literal["add", "drain", "remove"]
    gpu: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of the cluster. `away` says why nothing can be started there, `since` from when on."""

    name: str
    id: str
    address: str
    is_head: bool
    state: Literal["up", "away"]
    version: str
    labels: dict[str, str]
    gpus: int
    jobs: int
    away: str | None = None
    since: float | None = None


class NodeOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change a node: `forget` one that is not coming back."""

    action: Literal["forget"]
    node: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Samples one after another: when each was taken, and what it saw; None where nobody can tell."""

    at: list[float] = []
    mem_bytes: list[int | None] = []
    utilisation_pct: list[float | None] = []


class GpuInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as it was seen last, what the queue does there, and who else uses it."""

    label: str
    name: str | None
    mem_total_bytes: int
    mem_used_bytes: int
    mem_reserved_bytes: int  # what the jobs there may use
    utilisation_pct: int | None
    temperature_c: int | None
    power_w: float | None
    lost: bool
    slot: str | None  # None: the queue does not have it
    jobs: list[int]
    closed: str | None
    drained: str | None
    users: list[Foreigner]
    history: History


class GpuChange(msgspec.Struct, frozen=True, kw_only=True):
    """The slots that were changed, the jobs that still run there, and perhaps a warning."""

    slots: list[str]
    jobs: list[int] = []
    notice: str | None = None


class Kill(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """End jobs: a signal first (TERM), then KILL when the grace time is over."""

    grace_s: ShortTime | None = None


class Remove(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Forget jobs and their logs; those that run only with `kill`."""

    kill: bool = False


class Retry(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Let jobs run once more; with `fresh` from the working tree instead of its snapshot.

    With `reason` only those whose reason holds that text.
    """

    fresh: bool = False
    reason: str | None = None


class Refusal(msgspec.Struct, frozen=True):
    """Why nothing was done to a job."""

    id: int
    reason: str


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """What a verb has done, and to which jobs it could not."""

    ids: list[int]
    refused: list[Refusal] = []
    notice: str | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a list shows it."""

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
    ends_at: float | None = None  # of what runs: as far as others of its kind can tell
    reserved_bytes: int | None = None  # of what shares a GPU: the memory set aside for it
    capped: bool = False  # it cannot take more than that; else it is kept to it as far as it goes
    gpu_bytes: int | None = None  # of what runs: the GPU memory it holds, as seen last
    cwd: Bytes = ""
    nodes: list[
        str
    ] = []  # where it may run: on one of these nodes, on a kind of GPU, on nodes with
    on: str | None = None  # all of these labels
    node_labels: dict[str, str] = {}


class AttemptInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One try of a job."""

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
    """A job that another one waits for: for its success, or (`any`) just for its end."""

    id: int
    state: State | None
    any: bool


class JobOptions(Options, frozen=True, kw_only=True, omit_defaults=False):
    """How a job is ended, pushed out and tried again."""


class JobDetail(Job, frozen=True, kw_only=True):
    """Everything about a job; the environment with its secrets hidden."""

    argv: list[Bytes] | None
    line: Bytes | None
    script: bool
    shell: str | None
    env: dict[str, str]
    timeout_s: float | None
    retries: int
    share: str | None
    gpu_mem_bytes: int | None
    git: Git | None
    snapshot: str | None
    user: str | None
    host: str | None
    last_line: str | None
    log: Bytes | None
    needs: list[Need]
    options: JobOptions
    attempts: list[AttemptInfo]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs; `next` is the cursor of the page that follows."""

    jobs: list[Job]
    next: str | None = None


class SweepRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a sweep as the queue knows it. A success is remembered also of a job forgotten since."""

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
    params: str | None = None  # JSON, where it was asked for and is still known
    failure: FailureClass | None = None
    gpu_use: AttemptUse | None = None


class SweepPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a sweep's runs, the oldest first; `next` is the cursor of the page that follows."""

    runs: list[SweepRun]
    next: int | None = None


class BatchText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Several jobs as one text: a command a line, or GPUPeasy's `NAME;;OUTFILE;;COMMAND;;;`.

    The form `auto` knows GPUPeasy's text by its `;;;`.
    """

    text: Text
    cwd: str
    form: Literal["auto", "lines", "gpupeasy"] = "auto"


class BatchJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a batch, to be added as they are; and all that is wrong with it."""

    jobs: list[NewJob]
    errors: list[str]


class SweepDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sweep as it is written: a command and `words` (`lr=1,2`), or a file's text in YAML or TOML.

    What is given here beside the text takes the place of what the file says.
    """

    text: Text
    cwd: str
    form: Literal["words", "yaml", "toml"] = "words"
    words: Annotated[list[str], msgspec.Meta(max_length=1000)] = []
    name: Name | None = None
    method: Literal["grid", "random"] | None = None
    samples: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] | None = None
    repeats: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    rerun: Literal["undone", "failed", "all", "none"] = "undone"


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it would be queued."""

    id: str
    command: str
    params: dict[str, Any]


class SweepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a draft comes to: how many runs, how many of them are still to be queued, the first ones."""

    name: str
    count: int
    todo: int
    root: str
    varied: list[str]
    metric: str | None
    notes: list[str]
    runs: list[PlannedRun]


class SweepOrder(SweepDraft, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Queue the runs of a draft; what is not given here the file may say."""

    gpus: Gpus | None = None
    priority: Priority | None = None
    gpu_mem_bytes: GpuMemory | None = None
    nodes: list[Name] = []
    on: Name | None = None
    node_labels: NodeLabels = {}
    timeout: Annotated[str, msgspec.Meta(max_length=40)] | None = None
    retries: Retries | None = None


class SweepAdded(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that a sweep's runs became; `passed_over` were done, waiting or not asked for."""

    name: str
    added: int
    passed_over: int
    first: int | None = None
    last: int | None = None


class SweepInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep as a list shows it. Where it is `large`, `counts` are those of its newest runs alone."""

    name: str
    cwd: Bytes
    counts: dict[State, int]
    first: int
    last: int
    large: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a sweep with what came of it: parameters, and the metrics reported last."""

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
    """What came of a sweep; `params` are those that vary, `left_out` runs are older than these."""

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
    """What one run reported over time, thinned out where it is much."""

    job: int
    xs: list[float]
    ys: list[float]


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that jobs share: what it has for them, what is set aside, and what is in use in all."""

    capacity_bytes: int
    reserved_bytes: int
    used_bytes: int
    foreign_bytes: int
    sm: float
    capped: int = 0  # how many of the jobs there cannot take more than is set aside for them
    kept_for: int | None = None


class SlotInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A slot, what runs there, and why nothing can."""

    label: str
    jobs: list[int]
    closed: str | None
    held: bool
    drained: str | None = None
    paused: bool = False
    shared: Shared | None = None


class WarmWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A process that jobs are forked from: what it has imported, and the memory it takes."""

    pid: int
    modules: list[str]
    mem_bytes: int | None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How the daemon is."""

    version: str
    pid: int
    supervisor_pids: list[int]
    home: str
    since: float
    counts: dict[State, int]
    slots: list[SlotInfo]
    cpu_places: int
    notices: list[str]
    queue_paused: str | None = None
    projects_paused: dict[str, str] = {}
    no_project_paused: str | None = None  # why the jobs without a project are paused, if they are
    eta_s: float | None = None
    warm: list[WarmWorker] = []


class GpuCurve(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as it is, and its last minutes: seconds ago, bytes in use, percent of its time in use."""

    now: GpuUse
    past: list[tuple[float, int, int | None]]


class JobCurve(msgspec.Struct, frozen=True, kw_only=True):
    """A running job as it is, and its last minutes: seconds ago, bytes in use, percent of the GPU's time."""

    id: int
    now: JobUse
    past: list[tuple[float, int | None, float | None]]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What GPUs and jobs use; empty where there is no NVML. `age_s` is how old the last look is."""

    age_s: float | None
    gpus: list[GpuCurve]
    jobs: list[JobCurve]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the jobs one waits for have come.

    Once none is left, `took_s` is how long those that were named took: from the first start to the last
    end, without what came before a pause in which none of them ran. For what is `unfinished`, `since` and
    `last` tell from which moment on, and up to which job.
    """

    counts: dict[State, int]
    left: int
    took_s: float | None = None
    since: float | None = None
    last: int | None = None


class JobEvent(msgspec.Struct, frozen=True, kw_only=True, tag="job", tag_field="event"):
    """A job has come to another state."""

    id: int
    state: State
    attempt: int
    at: float
    slots: str | None = None
    reason: str | None = None


class GpuEvent(msgspec.Struct, frozen=True, kw_only=True, tag="gpu", tag_field="event"):
    """A slot was closed, or opened again."""

    slot: str
    closed: str | None
    at: float


class NoticeEvent(msgspec.Struct, frozen=True, kw_only=True, tag="notice", tag_field="event"):
    """Something a person should know."""

    text: str
    at: float


class LaggedEvent(msgspec.Struct, frozen=True, kw_only=True, tag="lagged", tag_field="event"):
    """The listener was too slow: so many events were left out."""

    missed: int


StreamEvent = JobEvent | GpuEvent | NoticeEvent | LaggedEvent


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the configuration."""

    name: str
    value: str
    default: str
    meaning: str


class NewSetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value for an entry of the configuration; none for its default."""

    name: str
    value: str | None


class WebOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Open the web page (at 127.0.0.1 and the user's own port, by default), move it or close it.

    With the host "none" it has no TCP port, only its unix socket.
    """

    action: Literal["open", "close"]
    host: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)] | None = None
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    new_token: bool = False


class WebPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where the web page is, and in which file the token that it wants; its unix socket is `socket`."""

    host: str
    port: int
    token_file: str
    socket: str


class Stop(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """End the daemon; with `kill` also what runs."""

    kill: bool = False


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was refused (RFC 9457)."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    field: str | None = None  # of the request: what the problem is with
