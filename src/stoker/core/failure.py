"""Failure classes and their remedies."""

from __future__ import annotations

import enum
import signal

import msgspec

from stoker.core.size import format_memory

_SIGKILL = signal.SIGKILL.value


class FailureClass(str, enum.Enum):
    """Class of a failure. Users and the database see the value."""

    GPU_OOM = "gpu_oom"
    HOST_OOM = "host_oom"
    OVER_MEM = "over_mem"
    GPU_FAULT = "gpu_fault"
    NEIGHBOUR = "neighbour"
    NCCL = "nccl"
    PORT_TAKEN = "port_taken"
    DISK_FULL = "disk_full"
    CONTAINER = "container"
    SETUP = "setup"
    DIVERGED = "diverged"
    STALLED = "stalled"
    IDLE = "idle"
    ERROR = "error"


MEANING = {
    FailureClass.GPU_OOM: "the GPU had too little memory for it",
    FailureClass.HOST_OOM: "the machine had too little memory for it",
    FailureClass.OVER_MEM: "it used more RAM than its --mem, and Stoker ended it",
    FailureClass.GPU_FAULT: "its GPU reported a fault",
    FailureClass.NEIGHBOUR: "a fault of its own, or of a job that it shared an MPS server with",
    FailureClass.NCCL: "its GPUs lost contact with each other",
    FailureClass.PORT_TAKEN: "another process listened at its port; the next attempt has a new $MASTER_PORT",
    FailureClass.DISK_FULL: "a disk was full",
    FailureClass.CONTAINER: "its container could not be started; the job waits and is tried again",
    FailureClass.SETUP: "a command, module, file or driver that it needs is missing; it is not retried",
    FailureClass.DIVERGED: "Stoker ended it for values that are not finite; it is not retried",
    FailureClass.STALLED: "Stoker ended it for silence: no output, no metric, no change of GPU use",
    FailureClass.IDLE: "Stoker ended it because it computed nothing on its GPU",
    FailureClass.ERROR: "the command itself failed",
}


class Remedy(str, enum.Enum):
    """What Stoker does about a failure."""

    AS_ASKED = "as asked"  # retry as often as the user allowed
    NEVER = "never"  # do not retry: the job would fail in the same way
    ONCE_MORE = "once more"  # one retry in addition to those
    ELSEWHERE = "elsewhere"  # one retry in addition, on another GPU
    MORE_ROOM = "more room"  # the sharing policy decides
    WITHOUT_MPS = "without MPS"  # retry at once, on a GPU of its own
    LATER = "later"  # in the queue: try again after a pause; in a foreground run: as asked
    WHEN_SPACE = "when there is space"  # pause the queue until there is space, then retry


class MemoryOverrun(msgspec.Struct, frozen=True):
    """RAM that an attempt used when it was killed for that, and its limit."""

    used_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        used, limit = format_memory(self.used_bytes), format_memory(self.limit_bytes)
        used = f"over {used}" if used == limit else used
        return f"used {used} of RAM, more than its --mem {limit}"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a failed attempt that its log does not show.

    `oom_kills`: the kernel killed a process for lack of memory since the attempt began. `full_disk`: a
    folder of the attempt whose file system is full now. `xid`: the fault that the driver reported for its
    GPU. `mps`: the attempt used an MPS server. `neighbours`: other jobs used the same MPS server. `overrun`:
    the attempt was killed because it used more RAM than it may. `image`: the attempt is a container.
    """

    oom_kills: bool = False
    full_disk: str | None = None
    xid: int | None = None
    mps: bool = False
    neighbours: bool = False
    overrun: MemoryOverrun | None = None
    image: bool = False


class OomFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of an out-of-memory message; None where the message gives none."""

    tried_bytes: int | None = None
    free_bytes: int | None = None
    total_bytes: int | None = None
    own_bytes: int | None = None
    others_bytes: int | None = None
    allowed_bytes: int | None = None

    @property
    def need_bytes(self) -> int | None:
        """The least memory that the job needs; None if the message does not say."""
        if self.tried_bytes is None:
            return None
        return self.tried_bytes + (self.own_bytes or 0)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why an attempt failed: a class for the scheduler and one line for users."""

    kind: FailureClass
    reason: str
    figures: OomFigures | None = None
    confirmed: bool = True  # for DISK_FULL: a disk is really full
    is_mute: bool = False  # the attempt ended by itself and its log is empty

    @property
    def remedy(self) -> Remedy:
        """What to do about this failure."""
        if self.kind is FailureClass.DISK_FULL and not self.confirmed:
            return Remedy.AS_ASKED
        return _REMEDIES[self.kind]


_REMEDIES = {
    FailureClass.GPU_OOM: Remedy.MORE_ROOM,
    FailureClass.HOST_OOM: Remedy.ONCE_MORE,
    FailureClass.OVER_MEM: Remedy.AS_ASKED,
    FailureClass.GPU_FAULT: Remedy.ELSEWHERE,
    FailureClass.NEIGHBOUR: Remedy.WITHOUT_MPS,
    FailureClass.NCCL: Remedy.ONCE_MORE,
    FailureClass.PORT_TAKEN: Remedy.ONCE_MORE,
    FailureClass.DISK_FULL: Remedy.WHEN_SPACE,
    FailureClass.CONTAINER: Remedy.LATER,
    FailureClass.SETUP: Remedy.NEVER,
    FailureClass.DIVERGED: Remedy.NEVER,
    FailureClass.STALLED: Remedy.AS_ASKED,
    FailureClass.IDLE: Remedy.AS_ASKED,
    FailureClass.ERROR: Remedy.AS_ASKED,
}


class Again(enum.Enum):
    """Whether a job is retried, and whether the retry counts against the job's `retries`."""

    NO = "no"
    COUNTED = "counted"
    UNCOUNTED = "uncounted"


def tries_again(failure: Failure | None, *, tries: int, retries: int, same_before: int) -> Again:
    """Decide on another try. `same_before` counts the job's earlier failures of the same class."""
    as_asked = Again.COUNTED if tries <= retries else Again.NO
    match failure.remedy if failure is not None else Remedy.AS_ASKED:
        case Remedy.NEVER:
            return Again.NO
        case Remedy.ONCE_MORE | Remedy.ELSEWHERE:
            return as_asked if same_before else Again.UNCOUNTED
        case Remedy.WHEN_SPACE | Remedy.WITHOUT_MPS:
            return Again.UNCOUNTED
        case _:
            return as_asked


def was_killed(status: int) -> bool:
    """Whether SIGKILL ended the process, or the command that the shell of the attempt ran."""
    return status & 0x7F == _SIGKILL or status >> 8 == 128 + _SIGKILL
