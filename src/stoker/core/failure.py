"""Of what class a failure is, and what is done about it."""

from __future__ import annotations

import enum
import signal

import msgspec

_SIGKILL = signal.SIGKILL.value


class FailureClass(str, enum.Enum):
    """What kind of failure it was; the value is what people and the database see."""

    GPU_OOM = "gpu_oom"
    HOST_OOM = "host_oom"
    GPU_FAULT = "gpu_fault"
    NEIGHBOUR = "neighbour"
    NCCL = "nccl"
    DISK_FULL = "disk_full"
    SETUP = "setup"
    ERROR = "error"


MEANING = {
    FailureClass.GPU_OOM: "the memory of its GPU did not suffice",
    FailureClass.HOST_OOM: "the memory of this machine did not suffice",
    FailureClass.GPU_FAULT: "its GPU reported a fault",
    FailureClass.NEIGHBOUR: "a fault of its own, or of a job that it shared an MPS server with",
    FailureClass.NCCL: "its GPUs lost touch with each other",
    FailureClass.DISK_FULL: "a disk was full",
    FailureClass.SETUP: "something that it needs is missing, so it is not tried again by itself",
    FailureClass.ERROR: "it failed by itself",
}


class Remedy(str, enum.Enum):
    """What is to be done about a failure."""

    AS_ASKED = "as asked"  # the retries that its user has granted, no more
    NEVER = "never"  # it would fail the same way: not even those
    ONCE_MORE = "once more"  # one try on top of those
    ELSEWHERE = "elsewhere"  # the same, on another GPU
    MORE_ROOM = "more room"  # up to the sharing policy
    WITHOUT_MPS = "without MPS"  # again at once, on a GPU of its own
    WHEN_SPACE = "when there is space"  # the queue is paused, and the job waits with it


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine knows beside the log.

    `oom_kills`: the kernel has killed for memory since the attempt began. `full_disk`: a folder of the
    attempt whose file system is full at this moment. `xid`: the driver's word of a fault on its GPU.
    `neighbours`: other jobs were served by the same MPS daemon, and `mps` whether it was served by one.
    """

    oom_kills: bool = False
    full_disk: str | None = None
    xid: int | None = None
    mps: bool = False
    neighbours: bool = False


class OomFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a message about GPU memory says in figures; None where it does not."""

    tried_bytes: int | None = None
    free_bytes: int | None = None
    total_bytes: int | None = None
    own_bytes: int | None = None
    others_bytes: int | None = None
    allowed_bytes: int | None = None

    @property
    def need_bytes(self) -> int | None:
        """What it would have needed at the least; None if the message does not tell."""
        if self.tried_bytes is None:
            return None
        return self.tried_bytes + (self.own_bytes or 0)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why an attempt failed, in a word for the machine and in a line for people."""

    kind: FailureClass
    reason: str
    figures: OomFigures | None = None
    confirmed: bool = True  # of a full disk: whether the disk says the same
    is_mute: bool = False  # it ended by itself, and there is nothing to read why

    @property
    def remedy(self) -> Remedy:
        """What to do about it."""
        if self.kind is FailureClass.DISK_FULL and not self.confirmed:
            return Remedy.AS_ASKED
        return _REMEDIES[self.kind]


_REMEDIES = {
    FailureClass.GPU_OOM: Remedy.MORE_ROOM,
    FailureClass.HOST_OOM: Remedy.ONCE_MORE,
    FailureClass.GPU_FAULT: Remedy.ELSEWHERE,
    FailureClass.NEIGHBOUR: Remedy.WITHOUT_MPS,
    FailureClass.NCCL: Remedy.ONCE_MORE,
    FailureClass.DISK_FULL: Remedy.WHEN_SPACE,
    FailureClass.SETUP: Remedy.NEVER,
    FailureClass.ERROR: Remedy.AS_ASKED,
}


class Again(enum.Enum):
    """Whether a job is tried again, and whether that counts among the retries it was granted."""

    NO = "no"
    COUNTED = "counted"
    UNCOUNTED = "uncounted"


def tries_again(failure: Failure | None, *, tries: int, retries: int, same_before: int) -> Again:
    """Decide on another try; `same_before` is how often the job has failed so before."""
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
    """Whether SIGKILL ended it: itself, or the command of the shell that it was."""
    return status & 0x7F == _SIGKILL or status >> 8 == 128 + _SIGKILL
