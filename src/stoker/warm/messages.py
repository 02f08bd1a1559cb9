"""Messages about warm starts between engine, supervisor and warm worker.

A supervisor and a worker exchange packets over a socket. A packet is a JSON array: the word of the message
from `_KINDS`, then its fields in the order given here. Standard library only: the worker loads this module
in the interpreter of the jobs.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    FileStamp = tuple[str, int, int]  # path, time of the last change in ns, size

    class Learned(TypedDict):
        """Modules that a run imported besides those of its worker, and the time that took.

        `partial`: the run goes on, and may import more. `sources` are the program's own modules: this holds
        while they do not change.
        """

        partial: bool
        modules: list[str]
        seconds: float
        sources: list[FileStamp]


MAX_BYTES = 1 << 18
"""The longest packet that a worker receives."""
REPORT_BYTES = 24
"""The size of a job's report."""
_MAX_PEAK_BYTES = 1 << 50
START = b"!"
"""The supervisor's answer to a forked job that has sent its pid: from here on the job runs."""
LATE = "late imports"
"""Instead of the name of a package that a worker leaves out: all that the script imports late."""


class ForkRequest(NamedTuple):
    """A python command that may be forked, and the modules to import before the fork.

    `words[script_at]` is the script, -m or -c; before it are the interpreter and its options. Imports search
    `path` first. `learned` is a file with the names of further modules, which may be missing. A job
    writes the names of the modules that it imported to the file `learn`. Both are the same file after a run
    that has not told all.
    """

    words: list[str]
    script_at: int
    path: str
    modules: list[str]
    learned: str | None = None
    learn: str | None = None
    gpu_share: float | None = None  # of the GPU's memory: torch and JAX take no more

    @property
    def script_name(self) -> str:
        """The file name of the script; that of -m and -c names no file."""
        return os.path.basename(self.words[self.script_at])


class Prepare(NamedTuple):
    """First packet to a worker: import the modules of this request.

    `mark` is the variable whose value in the environment reserves room for the variables of jobs. The
    worker ends after `idle_s` without an order. It leaves the packages `without` out of the learned modules.
    """

    request: ForkRequest
    idle_s: float
    mark: str
    without: list[str]


class ForkJob(NamedTuple):
    """Fork one job. Descriptors come with the packet: the handshake socket, two outputs, leases.

    `cold` is the command that runs the same job without a fork. `shown` are the variables that other
    processes must see in /proc. At its end, the job writes the GPU memory that it used to the file `report`,
    as `encode_peak` does; without a name it does not.
    """

    request: ForkRequest
    cold: list[str]
    cwd: str
    variables: dict[str, str]
    unset: list[str]
    shown: dict[str, str]
    report: str = ""


class Ready(NamedTuple):
    """The worker has imported these modules. Its forks are up to date while the stamps are."""

    modules: list[str]
    stamps: list[FileStamp]


class Unfit(NamedTuple):
    """No job can be forked from the worker, for this reason; without the packages `culprits` it could."""

    reason: str
    culprits: list[str]


if TYPE_CHECKING:
    Message = Prepare | ForkJob | Ready | Unfit

_KINDS: dict[str, type[Message]] = {
    "prepare": Prepare,
    "fork": ForkJob,
    "ready": Ready,
    "unfit": Unfit,
}
_WORDS = {kind: word for word, kind in _KINDS.items()}


def read_learned(path: str | None) -> Learned:
    """Return what an earlier run has learned; nothing if the file is missing or damaged."""
    nothing: Learned = {"partial": False, "modules": [], "seconds": 0.0, "sources": []}
    try:
        with open(path or "", encoding="utf-8") as file:
            found = json.load(file)
        modules, seconds = [str(name) for name in found["modules"]], float(found["seconds"])
        sources = [(str(path), int(ns), int(size)) for path, ns, size in found.get("sources", ())]
        is_partial = bool(found.get("partial"))
    except (OSError, ValueError, TypeError, KeyError):
        return nothing
    return {"partial": is_partial, "modules": modules, "seconds": seconds, "sources": sources}


def encode(message: Message) -> bytes:
    """Return the packet of a message."""
    return json.dumps((_WORDS[type(message)], *message)).encode()


def decode(packet: bytes) -> Message:
    """Return the message of a packet; raises KeyError, TypeError or ValueError for anything else."""
    word, *fields = json.loads(packet)
    if word in ("prepare", "fork"):
        fields[0] = ForkRequest(*fields[0])
    elif word == "ready":
        fields[1] = [tuple(stamp) for stamp in fields[1]]
    return _KINDS[word](*fields)


def encode_peak(peak_bytes: int) -> bytes:
    """Return the content of a job's report; nothing for a figure that can be none."""
    return b"%d" % peak_bytes if 0 < peak_bytes < _MAX_PEAK_BYTES else b""


def decode_peak(content: bytes) -> int:
    """Return the figure of a job's report; 0 if there is none. The report may be anything."""
    digits = content.rstrip(b"\0")
    if not digits.isdigit() or len(digits) > REPORT_BYTES:
        return 0
    peak_bytes = int(digits)
    return peak_bytes if peak_bytes < _MAX_PEAK_BYTES else 0


def stamp_file(path: str) -> FileStamp | None:
    """Return what changes when a file is written; None if there is no such file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return path, status.st_mtime_ns, status.st_size
