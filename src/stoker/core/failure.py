"""Why an attempt failed: read from its wait status, the end of its log and what the machine knows.

Only of attempts that failed: frameworks print the same texts and go on.
"""

from __future__ import annotations

import enum
import signal

import msgspec

from stoker.core.job import describe
from stoker.core.oom import OomFigures, read_figures, tell_figures
from stoker.core.symptoms import FailureClass, find_symptom

_REASON_LENGTH = 200
_SIGKILL = signal.SIGKILL.value
_NOT_RUN = (126, 127)


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


_NO_FACTS = Facts()


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why an attempt failed, in a word for the machine and in a line for people."""

    kind: FailureClass
    reason: str
    figures: OomFigures | None = None
    confirmed: bool = True  # of a full disk: whether the disk says the same

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


def classify(status: int, tail: str, facts: Facts = _NO_FACTS) -> Failure:
    """Say why an attempt failed that ended with this wait status; `tail` is the end of its log."""
    if status == 0:
        raise ValueError("an attempt that succeeded has no failure to be read from its log")
    symptom = find_symptom(tail)
    kind = _kind_of(symptom.kind, status, facts)
    figures = read_figures(tail) if kind is FailureClass.GPU_OOM else None
    told = _tell(kind, symptom.line, figures, facts)
    return Failure(
        kind=kind,
        reason=_shorten(f"{describe(status)}: {told}" if told else describe(status)),
        figures=figures,
        confirmed=kind is not FailureClass.DISK_FULL or facts.full_disk is not None,
    )


def _kind_of(shown: FailureClass, status: int, facts: Facts) -> FailureClass:
    """What it is, with what the machine knows beside what the log shows."""
    if shown in (FailureClass.GPU_FAULT, FailureClass.NEIGHBOUR):
        # The driver tells every client of a fault, and none of them whose it was.
        together = facts.mps and facts.neighbours
        return FailureClass.NEIGHBOUR if together else FailureClass.GPU_FAULT
    if shown is not FailureClass.ERROR:
        return shown
    if facts.xid is not None:
        return FailureClass.GPU_FAULT
    if was_killed(status) and facts.oom_kills:
        return FailureClass.HOST_OOM
    return FailureClass.SETUP if status >> 8 in _NOT_RUN else shown


def _tell(kind: FailureClass, text: str, figures: OomFigures | None, facts: Facts) -> str:
    match kind:
        case FailureClass.GPU_OOM:
            return "GPU out of memory" + (tell_figures(figures) if figures else "")
        case FailureClass.HOST_OOM if not text:
            return "out of memory: the kernel killed it"
        case FailureClass.HOST_OOM:
            return f"out of memory: {text}"
        case FailureClass.GPU_FAULT:
            xid = "" if facts.xid is None else f" (XID {facts.xid})"
            return f"GPU fault{xid}: {text}".removesuffix(": ")
        case FailureClass.NEIGHBOUR:
            return "GPU fault, its own or that of a job it shared an MPS server with"
        case FailureClass.NCCL:
            return f"GPUs lost touch: {text}"
        case FailureClass.DISK_FULL:
            where = "" if facts.full_disk is None else f" ({facts.full_disk} is full)"
            return f"disk full{where}: {text}"
        case _:
            return text


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REASON_LENGTH else line[: _REASON_LENGTH - 1] + "…"
