"""Warm worker: a process that imports modules and then forks; each fork becomes one job.

It runs in the interpreter of the jobs, where Stoker need not be installed: this package needs only the
standard library. Its parent is a supervisor, which sends orders over a socket on descriptor 3.

A job is forked twice, and the process in between ends: so the supervisor, the subreaper, becomes the parent
of the job. No job depends on the worker, which may be killed at any time.
"""

from __future__ import annotations

import array
import ctypes
import gc
import os
import select
import signal
import socket
import sys

from .child import Job, Origin, end_interpreter
from .import_settings import find_restores, quiet_imports
from .imports import Imports, UnfitError
from .late_imports import LateImports, find_late_imports
from .learning import is_installed
from .messages import (
    MAX_BYTES,
    ForkJob,
    Prepare,
    Ready,
    Unfit,
    decode,
    encode,
    read_learned,
    stamp_file,
)
from .static_imports import StaticImports, find_static_imports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .messages import FileStamp

_SOCKET_FD = 3
_MAX_FDS = 64
# Addresses of the arguments and the environment: fields of /proc/PID/stat after the name.
_ARG_START, _ARG_END, _ENV_START = 45, 46, 47
_PR_SET_PDEATHSIG = 1
_PARTS = (
    "child",
    "import_settings",
    "imports",
    "late_imports",
    "learning",
    "messages",
    "program_scan",
    "static_imports",
    "worker",
)
_prctl = ctypes.CDLL(None).prctl  # looked up once, for all forks


class ProcImage:
    """Arguments and environment of this process as other processes see them in /proc.

    The kernel shows the memory that the process was started with. The first variable, the mark, reserves room
    there for the variables of a job.
    """

    def __init__(self, mark: bytes) -> None:
        with open("/proc/self/stat", "rb") as file:
            text = file.read()
        fields = text[text.rindex(b")") + 2 :].split()
        self._argv_at = int(fields[_ARG_START])
        self._argv_size = int(fields[_ARG_END]) - self._argv_at
        with open("/proc/self/environ", "rb") as file:
            block = file.read()
        self.entries = [entry for entry in block.split(b"\0") if entry]
        found = [entry for entry in self.entries if entry.startswith(mark + b"=")]
        if not self._argv_at or not found:
            raise UnfitError("/proc does not show where its environment is")
        self._mark_at = int(fields[_ENV_START]) + block.index(found[0])
        self._mark_size = len(found[0])

    def show(self, words: list[str], variables: dict[str, str] | None = None) -> None:
        """Show these arguments, cut to the room there is, and these variables in place of the mark.

        Raises ValueError if there is no room for the variables.
        """
        shown = b"".join(os.fsencode(word) + b"\0" for word in words)[: self._argv_size - 1]
        pieces = [(self._argv_at, shown.ljust(self._argv_size, b"\0"))]
        if variables is not None:
            data = b"".join(os.fsencode(f"{name}={value}\0") for name, value in variables.items())
            if len(data) > self._mark_size:
                raise ValueError("the mark is too short")
            pieces.append((self._mark_at, data.ljust(self._mark_size, b"\0")))
        fd = os.open("/proc/self/mem", os.O_WRONLY | os.O_CLOEXEC)
        try:
            for at, piece in pieces:
                os.pwrite(fd, piece, at)
        finally:
            os.close(fd)


class Worker:
    """Imports modules, reports whether jobs can be forked, and forks on order."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._supervisor = os.getppid()
        order = decode(line.recv(MAX_BYTES))
        assert isinstance(order, Prepare)
        request = order.request
        self._idle_s = order.idle_s
        first, late = StaticImports([], []), LateImports()
        if request.learned or request.learn:
            script = os.path.join(request.path, request.script_name)
            first, late = find_static_imports(script), find_late_imports(script)
        learned = read_learned(request.learned)
        _take_path(request.path)
        self._imports = Imports(request.modules, first, learned["modules"], order.without, late)
        self._ahead_stamps = late.stamps
        self._learned_stamps = learned["sources"]
        self._image = ProcImage(order.mark.encode())
        self._image.show(["stoker: warm worker", *request.modules[:8]])
        self._origin = Origin(self._image.show)
        os.environ.pop(order.mark, None)
        sys.argv = [request.words[request.script_at]]

    def prepare(self) -> None:
        """Import the modules; raises UnfitError if no job can be forked afterwards."""
        given = dict(entry.partition(b"=")[::2] for entry in self._image.entries)
        output = os.memfd_create("imports")
        for fd in (1, 2):
            os.dup2(output, fd)
        before = len(sys.modules)
        gc.disable()  # imports leave little garbage, and collecting it takes a fifth of their time
        with quiet_imports():
            kept = self._imports.make()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        self._origin.output = os.pread(output, os.fstat(output).st_size, 0)
        os.close(output)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (1, 2):
            os.dup2(null, fd)
        os.close(null)
        self._origin.changes = _changes(given)
        os.chdir("/")  # the folder may be unmounted
        compile(
            "", "", "exec"
        )  # the first call creates hundreds of types; do that once for all forks
        self._origin.restores = find_restores()
        gc.freeze()
        gc.enable()
        self._origin.base = set(sys.modules)
        self._origin.made = len(sys.modules) - before
        own = [*self._learned_stamps, *(self._ahead_stamps if self._imports.is_ahead else ())]
        packet = encode(Ready(kept, _stamps(self._imports.watch.stamps) + own))
        self._line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(packet) + MAX_BYTES)
        self._line.send(packet)

    def serve(self) -> Job | None:
        """Fork one job for each order. Returns the job in each child, and None in the worker at the end.

        The process that forks the next job is made before its order comes, because a start waits for its
        fork.
        """
        worker = os.getpid()
        while True:
            forker = os.fork()
            if forker == 0:
                return self._fork_job(worker)
            if os.waitpid(forker, 0)[1]:
                return None

    def _fork_job(self, worker: int) -> Job:
        """Wait for an order and fork its job; returns in the job only. Ends with its worker."""
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != worker:
            os._exit(1)
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        data, fds = _receive(self._line) if poll.poll(self._idle_s * 1000) else (b"", [])
        if not data:
            os._exit(1)
        forker = os.getpid()
        if os.fork():
            os._exit(0)
        os.setsid()
        order = decode(data)
        assert isinstance(order, ForkJob)
        job = Job(order, fds, self._origin)
        job.register(forker)
        self._line.close()
        return job


def _receive(line: socket.socket) -> tuple[bytes, list[int]]:
    room = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
    data, ancillary, _flags, _address = line.recvmsg(MAX_BYTES, room)
    fds = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    for fd in fds:
        os.set_inheritable(fd, False)
    return data, list(fds)


def _take_path(folder: str | None) -> None:
    """Let imports search the script's folder first, as in a fresh interpreter."""
    is_safe = getattr(sys.flags, "safe_path", False) or sys.flags.isolated
    if not is_safe:
        del sys.path[0]  # the entry for the worker's own -c
        if folder is not None:
            sys.path.insert(0, folder)


def _changes(given: dict[bytes, bytes]) -> dict[str, str | None]:
    """Return how the interpreter's start and the imports have changed the environment."""
    before = {os.fsdecode(name): os.fsdecode(value) for name, value in given.items()}
    changed: dict[str, str | None] = {
        name: value for name, value in os.environ.items() if before.get(name) != value
    }
    for name in before.keys() - os.environ.keys():
        changed[name] = None
    return changed


def _stamps(sources: dict[str, FileStamp]) -> list[FileStamp]:
    """Return the stamps of the files that must not change while jobs are forked.

    These are the sources of modules that are not installed, as they were when they were imported. For
    installed modules the folders are enough: each installation changes those.
    """
    paths = {entry for entry in sys.path if os.path.isdir(entry)}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not is_installed(file) and not _is_ours(file):
            paths.add(file)
    stamps = [sources[path] for path in sorted(paths & sources.keys())]
    for path in sorted(paths - sources.keys()):
        stamp = stamp_file(path)
        if stamp is not None and (not os.path.isdir(path) or is_installed(f"{path}/")):
            stamps.append(stamp)
    return stamps


def _is_ours(path: str) -> bool:
    return os.path.dirname(path) == os.path.dirname(__file__)


def main() -> None:
    """Serve orders; in a forked child, run its job."""
    with socket.socket(fileno=_SOCKET_FD) as line:
        line.set_inheritable(False)
        try:
            worker = Worker(line)
            worker.prepare()
            job = worker.serve()
        except UnfitError as error:
            line.send(encode(Unfit(str(error), list(error.culprits))))
            job = None
    if job is None:
        os._exit(0)  # without exit handlers: those belong to jobs
    # By their names: a search through all modules would touch, and so copy, their memory.
    for part in _PARTS:
        del sys.modules[f"{__package__}.{part}"]
    del sys.modules[str(__package__)]
    end_interpreter(job)
