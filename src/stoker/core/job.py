"""Central types of a job: its request, its options, its attempts and their outcomes."""

from __future__ import annotations

import enum
import signal
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from stoker.core.failure import FailureClass
from stoker.core.lifecycle import TABLE, Event, State

_MOST_NAMES = 8


MAX_NAME = 200
ModuleName = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z", max_length=MAX_NAME)
]
# No option of an engine, and nothing that a terminal would interpret.
ImageName = Annotated[
    str, msgspec.Meta(pattern=r"^[^-\x00-\x20\x7f][^\x00-\x1f\x7f]*\Z", max_length=1000)
]
ShortTime = Annotated[float, msgspec.Meta(ge=0, le=86400)]
WasteLimit = Annotated[float, msgspec.Meta(ge=0)]
OnNan = Literal["mark", "notify", "stop"]


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a job is started, ended, pushed out and tried again, where it is not as usual.

    A submission has these fields too, and the store keeps them as they are: an option that is added
    here needs no other declaration on its way from the command line to the engine.
    """

    stop_signal: Annotated[int, msgspec.Meta(ge=1, le=64)] = signal.SIGTERM.value
    grace_s: ShortTime = 10.0
    signal_main: bool = False  # its main process alone gets the signal, not the whole tree
    backoff_s: ShortTime = 0.0  # the pause before the first retry, doubled with each one
    requeue: bool = False  # over its time limit it waits again instead of being killed
    preemptible: bool = False  # it may be pushed out
    preempt: bool = False  # it may push out others
    mps: bool = False  # it shares its GPU through NVIDIA's MPS, where others do too
    # Modules that it finds imported when it starts; `auto`: what the first run needs.
    warm: tuple[ModuleName, ...] = ()
    # The image that a container engine runs it in: a name, a .sif file, or the folder of a whole system.
    image: ImageName | None = None
    # What its node does with it when the node is cut off: stop it with the lease, or let it finish.
    on_cut: Literal["stop", "finish"] = "stop"
    sync: bool = False  # its snapshot is shipped to nodes that have not its folder
    # Below its folder: what it makes there is brought back.
    results: Annotated[str, msgspec.Meta(min_length=1, max_length=4000)] = "results"
    # It has a terminal, or it is a Jupyter server; `client` is the socket at which its client waits.
    interactive: Literal["terminal", "jupyter"] | None = None
    client: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")] | None = None
    # It is ended when its GPU (and the keyboard of an interactive job) was not used for so long; 0: never.
    idle_s: WasteLimit | None = None
    stall_s: WasteLimit | None = None  # the same without output, metrics and changing GPU use
    on_nan: OnNan | None = None  # what becomes of it if it reports values that are not finite


class JobClass(msgspec.Struct, frozen=True):
    """What decides where and when a job may start. The queue keeps jobs with equal values in one class."""

    slots: int = 1
    timeout_s: float | None = None
    project: str | None = None
    share: str | None = None  # sharing mode; None: it does not share
    gpu_mem: int | None = None  # bytes that it needs on each GPU
    where: str | None = None  # nodes and GPU models it may run on, as JSON; None: any
    cpus: int | None = None  # CPUs that are set aside for it
    mem_bytes: int | None = None  # RAM that is set aside for it; with more it is ended

    @property
    def declares_host(self) -> bool:
        """Whether it says how many CPUs or how much RAM it needs."""
        return self.cpus is not None or self.mem_bytes is not None

    @property
    def job_class(self) -> JobClass:
        """The class alone, without what a subclass adds."""
        return JobClass(*(getattr(self, name) for name in JobClass.__struct_fields__))


class Request(JobClass, frozen=True, kw_only=True):
    """Resources that a job needs, and how it is scheduled."""

    priority: int = 0
    retries: int = 0
    options: Options = Options()


class Ending(str, enum.Enum):
    """Why Stoker ends an attempt. This decides what becomes of the job."""

    KILL = "kill"  # the job is over
    OVERDUE = "overdue"  # the job is over, unless it has retries left
    PREEMPT = "preempt"  # the job waits again, behind the others of its priority
    PUSH = "push"  # the job waits again in its old position: a preempting job needs its slots
    # The attempt wastes its GPU: it has failed, in the failure class of the same value.
    DIVERGED = "diverged"
    STALLED = "stalled"
    IDLE = "idle"
    PRUNE = "prune"  # the job is over: its sweep needs it no more

    @property
    def is_preemption(self) -> bool:
        """Whether the job waits again, whatever the attempt's exit status is."""
        return self in (Ending.PREEMPT, Ending.PUSH)

    @property
    def failure(self) -> FailureClass | None:
        """The failure class of an attempt that is ended like this; None if it has not failed."""
        is_waste = self in (Ending.DIVERGED, Ending.STALLED, Ending.IDLE)
        return FailureClass(self.value) if is_waste else None

    @property
    def may_retry(self) -> bool:
        """Whether the retries of the job count, as after a failure."""
        return self is Ending.OVERDUE or self.failure is not None

    @property
    def event(self) -> Event:
        """What happens to the job when the attempt has ended."""
        if self is Ending.PRUNE:
            return Event.PRUNE
        return Event.PREEMPT if self.is_preemption else Event.KILL


class Attempt(msgspec.Struct, frozen=True):
    """One try of a job. Its key identifies it in protocols and journals."""

    job: int
    number: int

    @property
    def key(self) -> str:
        """The text form `JOB.NUMBER`."""
        return f"{self.job}.{self.number}"

    @classmethod
    def from_key(cls, key: str) -> Attempt:
        """Parse the text form."""
        job, _, number = key.partition(".")
        return cls(int(job), int(number))


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended. `status` is the raw wait status; None if there was no process.

    `cut_off`: it counts as ended because its node cannot be reached. `failure`: Stoker ended it for this.
    """

    event: Event
    status: int | None = None
    reason: str | None = None
    cut_off: bool = False
    failure: FailureClass | None = None

    @property
    def state(self) -> State:
        """The job's state after this outcome."""
        return TABLE[self.event][1]

    @property
    def is_success(self) -> bool:
        """Whether the job is done."""
        return self.event is Event.SUCCEED

    @property
    def exit_code(self) -> int | None:
        """The exit code; None if a signal ended the process or there was no process."""
        if self.status is None or self.status & 0x7F:
            return None
        return self.status >> 8


def judge(status: int, *, killed_because: str | None = None) -> Outcome:
    """Turn a wait status into an outcome. `killed_because` is Stoker's reason if it ended the attempt."""
    if killed_because is not None:
        return Outcome(event=Event.KILL, status=status, reason=killed_because)
    if status == 0:
        return Outcome(event=Event.SUCCEED, status=0)
    return Outcome(event=Event.FAIL, status=status, reason=describe(status))


def describe_leftovers(names: Sequence[str], stuck: Sequence[int] = ()) -> str | None:
    """Describe the processes that an attempt left behind: `names` were killed, `stuck` could not be."""
    told = []
    if names:
        count = (
            "1 process of this job was"
            if len(names) == 1
            else f"{len(names)} processes of this job were"
        )
        was = "was" if len(names) == 1 else "were"
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        some = ", ".join(names[:_MOST_NAMES])
        told.append(f"{count} still running after it ended and {was} killed: {some}{more}")
    if stuck:
        pids = ", ".join(map(str, stuck[:_MOST_NAMES]))
        told.append(
            f"processes of this job could not be killed and may still use its GPU: pid {pids}"
        )
    return "; ".join(told) or None


def describe(status: int) -> str:
    """Describe a wait status in words."""
    number = status & 0x7F
    if number:
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    code = status >> 8
    meaning = {126: ": not executable", 127: ": command not found"}.get(code, "")
    return f"exit {code}{meaning}"
