"""Search for the cause of a failure in the end of a log: the known texts, and where they count."""

from __future__ import annotations

import re

import msgspec

from stoker.core.failure import FailureClass
from stoker.core.oom_messages import GPU_OOM

_HOST_OOM = re.compile(
    r"^(?:numpy\S*\.)?(?:_ArrayMemoryError|MemoryError)\b"
    r"|DataLoader worker \(pid(?:\(s\))? [0-9, ]+\) (?:is killed by signal: (?:Killed|Bus error)"
    r"|exited unexpectedly)|DefaultCPUAllocator: (?:can't|not enough) (?:allocate )?memory",
    re.MULTILINE,
)
_GPU_FAULT = re.compile(
    r"illegal memory access|CUDA_ERROR_ILLEGAL_ADDRESS|uncorrectable ECC|fallen off the bus"
    r"|unspecified launch failure|CUDA_ERROR_LAUNCH_FAILED|\bXid\b.*: [0-9]+"
)
_MPS_FAULT = re.compile(
    r"cudaErrorMps(?:RpcFailure|ServerNotReady|ClientTerminated|ConnectionFailed)"
    r"|CUDA_ERROR_MPS_(?:RPC_FAILURE|SERVER_NOT_READY|CLIENT_TERMINATED|CONNECTION_FAILED)"
    r"|MPS (?:client|server)[^\n]*(?:terminated|failed|not ready)"
)
_NCCL = re.compile(r"NCCL error|DistBackendError|Watchdog caught collective")
_PORT_TAKEN = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_SETUP = re.compile(
    r"^(?:ModuleNotFoundError|ImportError|FileNotFoundError)\b"
    r"|(?:command not found|: not found|No such file or directory)$"
    r"|Driver/library version mismatch|CUDA driver version is insufficient"
    r"|NVIDIA driver on your system is too old|no kernel image is available"
)
_COMPLAINT = re.compile(r"\b(?:error|fatal|panic(?:ked)?|aborted)\b", re.IGNORECASE)
_CAUSES = (
    # In order of causality: when one rank dies of a GPU fault, the others complain of NCCL.
    (FailureClass.NEIGHBOUR, _MPS_FAULT),
    (FailureClass.GPU_FAULT, _GPU_FAULT),
    (FailureClass.GPU_OOM, GPU_OOM),
    (FailureClass.DISK_FULL, _DISK_FULL),
    (FailureClass.HOST_OOM, _HOST_OOM),
    (FailureClass.PORT_TAKEN, _PORT_TAKEN),
    (FailureClass.NCCL, _NCCL),
)

_TRACEBACK = re.compile(r"^(?:\[rank\d+\]: ?)?Traceback \(most recent call last\):", re.MULTILINE)
_CHAIN = re.compile(
    r"(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):\s*\Z"
)
_EXCEPTION = re.compile(
    r"^(?:\[rank\d+\]: ?)?((?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?::[ \t]*(.*))?$", re.MULTILINE
)
# Errors of a process that waited for another one. The cause of such an error is further up in the log;
# texts before any other kind of exception are ignored, because the program had recovered from them.
_WRAPPER = re.compile(
    r"(?:\w+\.)*(?:ChildFailedError|CalledProcessError|ProcessExitedException|BrokenProcessPool"
    r"|DistBackendError|DistNetworkError|DistStoreError|RayTaskError\S*|WorkerCrashedError"
    r"|BrokenPipeError|Connection(?:Reset|Refused|Aborted)?Error)"
)
_WAITED = re.compile(
    r"DataLoader worker|[Pp]in memory thread|NCCL|Gloo|[Cc]onnection (?:reset|closed)"
)
# Introduces the traceback of an error that did not end the program.
_ASIDE = re.compile(
    r"Exception ignored\b|Exception in thread\b|Error in atexit\b|--- Logging error"
)


class Symptom(msgspec.Struct, frozen=True):
    """Failure class that a log shows, and the line that shows it (empty if no line does)."""

    kind: FailureClass
    line: str


def find_symptom(tail: str) -> Symptom:
    """Find the failure class in the end of a failed attempt's log."""
    last, exception = _last_words(tail)
    cause = _cause_in(last)
    if cause is None and (exception is None or _is_wrapper(exception)):
        cause = _cause_in(tail)
    if cause is not None:
        return cause
    line = _line_of(exception) if exception is not None else last.rstrip().rpartition("\n")[2]
    if _SETUP.search(line):
        return Symptom(FailureClass.SETUP, line)
    shows = exception is not None or _COMPLAINT.search(line)
    return Symptom(FailureClass.ERROR, line if shows else "")


def _last_words(tail: str) -> tuple[str, re.Match[str] | None]:
    """Return the text from the last chain of tracebacks on, and the exception of the last traceback."""
    found = [match.start() for match in _TRACEBACK.finditer(tail)]
    if not found:
        return tail, None
    starts = [start for start in found if not _is_aside(tail, start)] or found
    start = starts.pop()
    exception = _EXCEPTION.search(tail, start)
    while starts and _CHAIN.search(tail, 0, start):
        start = starts.pop()
    return tail[start:], exception


def _is_aside(tail: str, start: int) -> bool:
    before = tail[:start].rstrip("\n").rpartition("\n")[2]
    return _ASIDE.search(before) is not None


def _is_wrapper(exception: re.Match[str]) -> bool:
    return bool(_WRAPPER.fullmatch(exception[1]) or _WAITED.search(exception[2] or ""))


def _cause_in(text: str) -> Symptom | None:
    for kind, pattern in _CAUSES:
        places = [match.span() for match in pattern.finditer(text)]
        if places:
            start, end = places[-1]
            line_end = text.find("\n", end)
            line = text[text.rfind("\n", 0, start) + 1 : None if line_end < 0 else line_end]
            return Symptom(kind, line.strip())
    return None


def _line_of(exception: re.Match[str]) -> str:
    return f"{exception[1]}: {exception[2]}" if exception[2] else exception[1]
