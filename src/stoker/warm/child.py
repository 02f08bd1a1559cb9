"""Fork of a warm worker: runs a job as a fresh interpreter would.

Standard library only, as the worker.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib.machinery
import io
import os
import resource
import signal
import socket
import sys
import time

from .learning import JOB_VARIABLES, ChildSettings, find_learned, write_learned
from .messages import START, encode_peak, read_learned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, TracebackType
    from typing import Any, NoReturn

    from .messages import ForkJob

_FIRST_LEASE_FD = 200
_ALLOCATOR_VARIABLES = (
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
)  # torch reads the first set
_WRITERS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
_FOLDER = os.path.dirname(__file__)
_exit = ctypes.PyDLL(
    None
).exit  # exit(3), which calls the hooks of C libraries; looked up once for all forks


def _inherit_lease(fd: int) -> None:
    """Make a descriptor inheritable, under a number that scripts do not use."""
    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fcntl.fcntl(fd, fcntl.F_DUPFD, min(_FIRST_LEASE_FD, limit // 2))


class Origin:
    """What a job inherits from its worker.

    `output` is what the imports have written, `changes` how they have changed the environment, `base` the
    imported modules, `made` how many of them it was asked for, and `show` sets the arguments and variables
    that other processes see. `restores` undo in a job what the worker has set for its imports.
    """

    def __init__(self, show: Callable[[list[str], dict[str, str]], None]) -> None:
        self.show = show
        self.output = b""
        self.changes: dict[str, str | None] = {}
        self.base: set[str] = set()
        self.made = 0
        self.restores: list[Callable[[], None]] = []


class Job:
    """A forked job. Before `register` returns, the supervisor does not know it."""

    def __init__(self, order: ForkJob, fds: list[int], origin: Origin) -> None:
        self._order = order
        self._fds = fds
        self._origin = origin
        self._settings = ChildSettings()
        self._supervisor = self._pid = 0

    def register(self, forker: int) -> None:
        """Become a child of the supervisor with the job's cookie, and wait for its answer; else end."""
        socket_fd, *passed = self._fds
        self._origin.show(self._order.request.words, self._order.shown)
        os.dup2(passed[0], 1)
        os.dup2(passed[1], 2)
        for fd in passed[2:]:
            _inherit_lease(fd)
        while os.getppid() == forker:
            os.sched_yield()
        self._supervisor, self._pid = os.getppid(), os.getpid()
        with socket.socket(fileno=socket_fd) as handshake:
            handshake.send(b"%d" % os.getpid())
            if handshake.recv(1) != START:
                os._exit(0)
        for fd in passed:
            os.close(fd)

    def run(self) -> None:
        """Run the command as a fresh interpreter would. Its exceptions are not caught."""
        order = self._order
        os.chdir(order.cwd)
        _take_variables(order.variables, order.unset, self._origin.changes)
        words, at = order.request.words, order.request.script_at
        if words[at] not in ("-m", "-c") and not _is_plain_script(words[at]):
            _run_cold(order.cold)
        _renew_streams()
        if self._origin.output:
            os.write(1, self._origin.output)
        _renew_randomness()
        for restore in self._origin.restores:
            restore()
        if order.request.gpu_share is not None:
            _cap_gpu_memory(order.request.gpu_share)
        sys.orig_argv = words
        _renew_main()
        if order.request.learn is not None:
            self._settings.watch(lambda: self._learn(is_partial=True))
        try:
            if words[at] == "-m":
                _run_module(words[at + 1], words[at + 2 :])
            elif words[at] == "-c":
                _run_text(words[at + 1], words[at + 2 :])
            else:
                _run_script(words[at], words[at:])
        except SystemExit as error:
            if error.code in (None, 0):
                self._learn()
            raise
        self._learn()

    def end(self, status: int) -> None:
        """Do what an interpreter does at its end, but only for objects that were made after the fork.

        To finalise the others would copy their memory first. Returns only after an error: then the
        interpreter ends in its own way and reports the error.
        """
        threading = sys.modules.get("threading")
        if threading is not None:
            threading._shutdown()
        self._report_gpu_memory()
        atexit._run_exitfuncs()
        for name in sys.modules.keys() - self._origin.base:
            del sys.modules[name]
        del sys.modules["__main__"]
        gc.collect()
        try:
            for each in [*_open_files(), sys.stdout, sys.stderr]:
                if each is not None and not each.closed:
                    each.flush()
        except (OSError, ValueError):
            return
        _exit(status)

    def _report_gpu_memory(self) -> None:
        """Write the most GPU memory that torch has reserved, if the job has used torch with CUDA."""
        if not self._order.report or "torch.cuda" not in sys.modules or os.getpid() != self._pid:
            return
        content = encode_peak(_peak_gpu_memory())
        with contextlib.suppress(OSError):
            if content:
                fd = os.open(self._order.report, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    os.write(fd, content)
                finally:
                    os.close(fd)

    def _learn(self, *, is_partial: bool = False) -> None:
        """Write what the job has imported, and wake the supervisor: it looks for that at each such signal."""
        request = self._order.request
        if request.learn is None:
            return
        learned = find_learned(self._origin.base, self._origin.made, self._settings)
        if isinstance(learned, dict):
            known = read_learned(request.learned)
            learned["partial"] = is_partial
            learned["modules"] = [*dict.fromkeys([*known["modules"], *learned["modules"]])]
            learned["seconds"] += known["seconds"]
            own = {stamp[0]: stamp for stamp in (*known["sources"], *learned["sources"])}
            learned["sources"] = [*own.values()]
        elif is_partial:
            return
        if write_learned(request.learn, learned) and os.getppid() == self._supervisor:
            os.kill(self._supervisor, signal.SIGCHLD)


def _take_variables(given: dict[str, str], absent: list[str], own: dict[str, str | None]) -> None:
    """Set the job's environment, with the changes that the imports made."""
    for name in absent:
        os.environ.pop(name, None)
    for name, value in given.items():
        if name not in own or name in JOB_VARIABLES:
            os.environ[name] = value


def _renew_streams() -> None:
    """Replace stdout and stderr by streams as a fresh interpreter makes them."""
    for name, fd in (("stdout", 1), ("stderr", 2)):
        old = getattr(sys, f"__{name}__")
        if isinstance(old, io.TextIOWrapper):
            new = _make_stream(old, fd)
            if getattr(sys, name) is old:
                setattr(sys, name, new)
            setattr(sys, f"__{name}__", new)


def _make_stream(old: io.TextIOWrapper, fd: int) -> io.TextIOWrapper:
    is_unbuffered = old.write_through
    binary: Any = open(fd, "wb", 0 if is_unbuffered else -1, closefd=False)  # noqa: SIM115 - it stays
    (binary if is_unbuffered else binary.raw).name = old.name
    stream = io.TextIOWrapper(
        binary,
        encoding=old.encoding,
        errors=old.errors,
        newline="\n",
        line_buffering=not is_unbuffered and (fd == 2 or os.isatty(fd)),
        write_through=is_unbuffered,
    )
    stream.mode = "w"  # type: ignore[misc]
    return stream


def _renew_randomness() -> None:
    """Reseed random numbers and secrets that forks would otherwise share.

    Python reseeds its own `random` after a fork.
    """
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    generator = getattr(sys.modules.get("torch"), "default_generator", None)
    if generator is not None:
        generator.seed()
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.current_process().authkey = os.urandom(32)
    logging = sys.modules.get("logging")
    if logging is not None:
        is_in_ns = isinstance(getattr(logging, "_startTime", 0.0), int)
        logging._startTime = time.time_ns() if is_in_ns else time.time()  # type: ignore[attr-defined]


def _cap_gpu_memory(share: float) -> None:
    """Keep torch and JAX to a share of the GPU's memory, unless the job sets a limit itself.

    CUDA is not initialised yet: an imported torch applies the limit when it is.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{share:.4f}")
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None:
        cuda._lazy_call(lambda: cuda.set_per_process_memory_fraction(share))
        return
    name = next((name for name in _ALLOCATOR_VARIABLES if os.environ.get(name)), None)
    given = os.environ[name] + "," if name is not None else ""
    os.environ[name or _ALLOCATOR_VARIABLES[0]] = f"{given}per_process_memory_fraction:{share:.4f}"


def _peak_gpu_memory() -> int:
    """Return the most memory that torch has reserved, on all devices; 0 without CUDA. Raises nothing.

    Neither imports torch nor initialises CUDA.
    """
    try:
        cuda: Any = sys.modules["torch.cuda"]
        if not cuda.is_initialized():
            return 0
        return sum(int(cuda.max_memory_reserved(device)) for device in range(cuda.device_count()))
    except BaseException:  # whatever a module of this name does
        return 0


def _renew_main() -> None:
    """Replace the module `__main__` by a fresh one."""
    old = sys.modules["__main__"]
    new = sys.modules["__main__"] = type(old)("__main__")
    for name in ("__loader__", "__annotations__", "__builtins__"):
        if name in old.__dict__:
            new.__dict__[name] = old.__dict__[name]


def _open_files() -> list[Any]:
    """Return the files that are still open for writing, the outermost layers first."""
    found = [each for each in gc.get_objects() if isinstance(each, _WRITERS)]
    return sorted(
        found, key=lambda each: _WRITERS.index(type(each)) if type(each) in _WRITERS else 0
    )


def _is_plain_script(path: str) -> bool:
    """Whether a script is readable source code: no folder, archive or compiled file."""
    return path.endswith(".py") and os.path.isfile(path) and os.access(path, os.R_OK)


def _run_script(script: str, argv: list[str]) -> None:
    main = sys.modules["__main__"]
    path = os.path.join(os.getcwd(), script)
    sys.argv = argv
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__file__ = path
    if sys.version_info < (3, 15):
        main.__dict__["__cached__"] = None
    with open(path, "rb") as file:
        source = file.read()
    try:
        code: CodeType = compile(source, path, "exec", dont_inherit=True)
        exec(code, main.__dict__)  # noqa: S102 - the purpose of this process
    finally:
        # The interpreter does so before it prints a traceback.
        for stream in (sys.stderr, sys.stdout):
            with contextlib.suppress(Exception):
                stream.flush()


def _run_module(name: str, arguments: list[str]) -> None:
    import runpy

    sys.argv = ["-m", *arguments]
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]


def _run_text(text: str, arguments: list[str]) -> None:
    sys.argv = ["-c", *arguments]
    code: CodeType = compile(text + "\n", "<string>", "exec", dont_inherit=True)
    exec(code, sys.modules["__main__"].__dict__)  # noqa: S102 - the purpose of this process


def _run_cold(words: list[str]) -> NoReturn:
    """Replace this process by a fresh interpreter, which runs the command or explains its error."""
    for signum in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(signum, signal.SIG_DFL)
    os.execve(words[0], words, os.environ)  # noqa: S606 - no shell is wanted


def _own_frames_removed(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and _is_ours(traceback):
        traceback = traceback.tb_next
    return traceback


def _is_ours(traceback: TracebackType) -> bool:
    return os.path.dirname(traceback.tb_frame.f_code.co_filename) == _FOLDER


def end_interpreter(job: Job) -> None:
    """Run a job, and end as a fresh interpreter would. Tracebacks have no frames of Stoker."""
    status = 0
    try:
        job.run()
    except SystemExit as error:
        status = _status_of(error)
    except BaseException as error:
        _show(error)
        if isinstance(error, KeyboardInterrupt):
            sys.excepthook = lambda *_args: None
            raise
        status = 1
    job.end(status)
    sys.exit(status)


def _status_of(error: SystemExit) -> int:
    """Return the exit status for the argument of sys.exit, as an interpreter does."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """Print the traceback of an uncaught exception, from the first frame of the job."""
    error.__traceback__ = sys.last_traceback = _own_frames_removed(error.__traceback__)
    sys.last_type, sys.last_value = type(error), error
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    sys.excepthook(type(error), error, sys.last_traceback)
