"""A process that has imported modules, and from then on only forks: each fork becomes one job.

It runs in the interpreter of the jobs, where Stoker need not be installed: this file stands alone, on
the standard library. Its parent is a shepherd, which sends orders over a socket on descriptor 3.

A job is forked twice, and the process between ends at once: so the shepherd, the subreaper, becomes the
job's own parent. Nothing of a job depends on this process, which may be killed at any time.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import gc
import importlib
import importlib.machinery
import io
import json
import os
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, TracebackType
    from typing import Any, NoReturn

_SOCKET_FD = 3
_FIRST_LEASE_FD = 200
_MOST_FDS = 64
_MOST_BYTES = 1 << 18
# Where a process's arguments and environment lie in its memory: fields of /proc/PID/stat after the name.
_ARG_START, _ARG_END, _ENV_START = 45, 46, 47
_MATTERS_S = 0.001
_WRITERS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


class UnfitError(Exception):
    """No job may be forked from this process; says why."""


class Memory:
    """What others see of this process in /proc: its words, and the start of its environment.

    The kernel shows the very bytes that the process was started with, wherever its variables are by
    now. The first variable is a mark as long as whatever has to take its place.
    """

    def __init__(self, mark: bytes) -> None:
        with open("/proc/self/stat", "rb") as file:
            text = file.read()
        fields = text[text.rindex(b")") + 2 :].split()
        self._words_at = int(fields[_ARG_START])
        self._words_size = int(fields[_ARG_END]) - self._words_at
        with open("/proc/self/environ", "rb") as file:
            block = file.read()
        self.entries = [entry for entry in block.split(b"\0") if entry]
        found = [entry for entry in self.entries if entry.startswith(mark + b"=")]
        if not self._words_at or not found:
            raise UnfitError("/proc does not show where its environment is")
        self._mark_at = int(fields[_ENV_START]) + block.index(found[0])
        self._mark_size = len(found[0])

    def show_words(self, words: list[str]) -> None:
        """Be seen as a process with these arguments, as far as there is room."""
        data = b"".join(os.fsencode(word) + b"\0" for word in words)[: self._words_size - 1]
        _write_memory(self._words_at, data.ljust(self._words_size, b"\0"))

    def show_variables(self, variables: dict[str, str]) -> None:
        """Be seen with these variables in place of the mark; ValueError where there is no room."""
        data = b"".join(os.fsencode(f"{name}={value}\0") for name, value in variables.items())
        if len(data) > self._mark_size:
            raise ValueError("the mark is too short")
        _write_memory(self._mark_at, data.ljust(self._mark_size, b"\0"))


def _write_memory(at: int, data: bytes) -> None:
    fd = os.open("/proc/self/mem", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(fd, data, at)
    finally:
        os.close(fd)


class Worker:
    """Imports, says whether it is fit to be forked from, and forks on order."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._shepherd = os.getppid()
        plan = json.loads(line.recv(_MOST_BYTES))
        self._idle_s: float = plan["idle_s"]
        self._modules: list[str] = plan["modules"]
        self._learned = _read_learned(plan["learned"])
        self._memory = Memory(plan["mark"].encode())
        self._memory.show_words(["stoker: warm worker", *self._modules[:8]])
        self._told = b""
        self._base: set[str] = set()
        self.changes: dict[str, str | None] = {}
        os.environ.pop(plan["mark"], None)
        _take_path(plan["path"])
        sys.argv = [plan["program"]]

    def prepare(self) -> None:
        """Import everything; raises UnfitError if nothing can be forked from what that leaves behind."""
        given = dict(entry.partition(b"=")[::2] for entry in self._memory.entries)
        output = os.memfd_create("imports")
        for fd in (1, 2):
            os.dup2(output, fd)
        kept = self._import_all()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        self._told = os.pread(output, os.fstat(output).st_size, 0)
        os.close(output)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (1, 2):
            os.dup2(null, fd)
        os.close(null)
        self.changes = _changes(given)
        os.chdir("/")  # whatever was mounted there may be unmounted
        gc.collect()
        gc.freeze()
        _check_fitness()
        self._base = set(sys.modules)
        self._say("ready", kept, _stamps())

    def _import_all(self) -> list[str]:
        """Import; returns what was asked for, and of what was learned whatever took its time."""
        for name in self._modules:
            try:
                importlib.import_module(name)
            except BaseException as error:
                raise UnfitError(f"import {name}: {_one_line(error)}") from error
        took = []
        for name in self._learned:
            begun = time.monotonic()
            with contextlib.suppress(BaseException):  # it is there, or not: nobody asked for it
                importlib.import_module(name)
            took.append((time.monotonic() - begun, name))
        return self._modules + [name for s, name in sorted(took, reverse=True) if s >= _MATTERS_S]

    def say_unfit(self, reason: str) -> None:
        """Tell why nothing will be forked."""
        self._say("unfit", reason)

    def _say(self, *words: object) -> None:
        data = json.dumps(words).encode()
        self._line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(data) + _MOST_BYTES)
        self._line.send(data)

    def serve(self) -> Job | None:
        """Fork as often as ordered. Returns the job in each child, and None when nothing more comes."""
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        while poll.poll(self._idle_s * 1000):
            data, fds = _receive(self._line)
            if not data:
                return None
            between = os.fork()
            if between == 0:
                job = self._fork_again(data, fds)
                job.take_place(self._memory)
                self._line.close()
                return job
            os.waitpid(between, 0)
            for fd in fds:
                os.close(fd)
        return None

    def _fork_again(self, data: bytes, fds: list[int]) -> Job:
        """End this process, and go on as its child."""
        between = os.getpid()
        if os.fork():
            os._exit(0)
        os.setsid()
        order = json.loads(data)
        return Job(order, fds, between, self)

    @property
    def told(self) -> bytes:
        """What imports have written: every job writes it again, as it would have without this process."""
        return self._told

    @property
    def base(self) -> set[str]:
        """The modules that every job begins with."""
        return self._base


class Job:
    """A job from its fork to its first statement. Until it has its place, nobody counts on it."""

    def __init__(self, order: dict[str, Any], fds: list[int], between: int, worker: Worker) -> None:
        self._order = order
        self._fds = fds
        self._between = between
        self._worker = worker

    def take_place(self, memory: Memory) -> None:
        """Become the shepherd's child with the job's mark, and wait for its word; else end unseen."""
        line, *outputs = self._fds
        shown = self._order["shown"]
        memory.show_variables(shown)
        memory.show_words(self._order["words"])
        os.dup2(outputs[0], 1)
        os.dup2(outputs[1], 2)
        for place, fd in enumerate(outputs[2:]):
            os.dup2(fd, _FIRST_LEASE_FD + place)
        while os.getppid() == self._between:
            os.sched_yield()
        with socket.socket(fileno=line) as handshake:
            handshake.send(b"%d" % os.getpid())
            if handshake.recv(1) != b"!":
                os._exit(0)
        for fd in outputs:
            os.close(fd)

    def run(self) -> None:
        """Run the command as a fresh interpreter would; whatever it raises is raised."""
        order = self._order
        os.chdir(order["cwd"])
        _take_variables(order["set"], order["unset"], self._worker.changes)
        words: list[str] = order["words"]
        at: int = order["at"]
        if words[at] not in ("-m", "-c") and not _is_plain_script(words[at]):
            _run_cold(order["cold"])
        _renew_streams()
        if self._worker.told:
            os.write(1, self._worker.told)
        _renew_randomness()
        sys.orig_argv = words
        _renew_main()
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
        """Do what an interpreter does at its end, but leave alone what was there before the fork.

        To take all of it apart would copy all of it first. Returns only where something is amiss: then
        the interpreter is to do it, and to tell.
        """
        threading = sys.modules.get("threading")
        if threading is not None:
            threading._shutdown()
        atexit._run_exitfuncs()
        for name in sys.modules.keys() - self._worker.base:
            del sys.modules[name]
        del sys.modules["__main__"]
        gc.collect()
        try:
            for each in [*_open_files(), sys.stdout, sys.stderr]:
                if each is not None and not each.closed:
                    each.flush()
        except (OSError, ValueError):
            return
        ctypes.PyDLL(None).exit(status)

    def _learn(self) -> None:
        if self._order["learn"] is not None:
            _learn(self._order["learn"], self._worker.base)


def _read_learned(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        with open(path, encoding="utf-8") as file:
            return [str(name) for name in json.load(file)]
    except (OSError, ValueError):
        return []


def _receive(line: socket.socket) -> tuple[bytes, list[int]]:
    room = socket.CMSG_SPACE(_MOST_FDS * array.array("i").itemsize)
    data, ancillary, _flags, _address = line.recvmsg(_MOST_BYTES, room)
    fds = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    for fd in fds:
        os.set_inheritable(fd, False)
    return data, list(fds)


def _take_path(folder: str | None) -> None:
    """Let imports find what they would find from the script's folder, or with -m from the current one."""
    is_safe = getattr(sys.flags, "safe_path", False) or sys.flags.isolated
    if not is_safe:
        del sys.path[0]  # of this program's own start, by -c
        if folder is not None:
            sys.path.insert(0, folder)


def _changes(given: dict[bytes, bytes]) -> dict[str, str | None]:
    """What the interpreter's start and the imports have made of the environment."""
    before = {os.fsdecode(name): os.fsdecode(value) for name, value in given.items()}
    changed: dict[str, str | None] = {
        name: value for name, value in os.environ.items() if before.get(name) != value
    }
    for name in before.keys() - os.environ.keys():
        changed[name] = None
    return changed


def _check_fitness() -> None:
    """Raise UnfitError where a fork would not have all that this process has."""
    if _count_threads() > 1:
        # Numeric libraries end their idle threads when a fork is near, and start them when needed.
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    if _count_threads() > 1:
        raise UnfitError("an import started threads, which a fork would not have")
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("/dev/nvidia"):
            raise UnfitError("an import has opened the GPU, which a fork could not use")
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        raise UnfitError("an import has initialised CUDA, which a fork could not use")


def _count_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _stamps() -> list[tuple[str, int, int]]:
    """What must not change while jobs are forked: the files of modules that somebody is working on.

    Of what is installed, the folders are enough: whoever installs something changes those.
    """
    paths = {entry for entry in sys.path if os.path.isdir(entry)}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not _is_installed(file) and module.__name__ != __name__:
            paths.add(file)
    stamps = []
    for path in sorted(paths):
        try:
            status = os.stat(path)
        except OSError:
            continue
        if not os.path.isdir(path) or _is_installed(f"{path}/"):
            stamps.append((path, status.st_mtime_ns, status.st_size))
    return stamps


def _is_installed(path: str) -> bool:
    """Whether a file belongs to the interpreter or to what was installed for it."""
    library = os.path.dirname(os.__file__)
    return "/site-packages/" in path or "/dist-packages/" in path or path.startswith(f"{library}/")


def _take_variables(given: dict[str, str], absent: list[str], own: dict[str, str | None]) -> None:
    """Have the job's environment, and on top of it what the same imports would have made of it."""
    for name in absent:
        os.environ.pop(name, None)
    for name, value in given.items():
        if name not in own:
            os.environ[name] = value


def _renew_streams() -> None:
    """Have the streams that an interpreter makes for the descriptors that it finds."""
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
    """Let no two jobs draw the same numbers, or know the same secret, where fresh processes would not.

    Python's own `random` is seeded anew with every fork.
    """
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.current_process().authkey = os.urandom(32)
    logging = sys.modules.get("logging")
    if logging is not None:
        is_in_ns = isinstance(getattr(logging, "_startTime", 0.0), int)
        logging._startTime = time.time_ns() if is_in_ns else time.time()  # type: ignore[attr-defined]


def _renew_main() -> None:
    """Have a module `__main__` as a fresh interpreter does."""
    old = sys.modules["__main__"]
    new = sys.modules["__main__"] = type(old)("__main__")
    for name in ("__loader__", "__annotations__", "__builtins__"):
        if name in old.__dict__:
            new.__dict__[name] = old.__dict__[name]


def _open_files() -> list[Any]:
    """Files that a job has opened and nobody closed, the outermost layers first."""
    found = [each for each in gc.get_objects() if isinstance(each, _WRITERS)]
    return sorted(
        found, key=lambda each: _WRITERS.index(type(each)) if type(each) in _WRITERS else 0
    )


def _is_plain_script(path: str) -> bool:
    """Whether it is source code that can be read: no folder, archive or compiled file."""
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
        exec(code, main.__dict__)  # noqa: S102 - to run it is what this process is for
    finally:
        # The interpreter does so before it tells what went wrong.
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
    exec(code, sys.modules["__main__"].__dict__)  # noqa: S102 - to run it is what this process is for


def _run_cold(words: list[str]) -> NoReturn:
    """Become the command itself, by a fresh interpreter: it knows what to do, or what to say."""
    for signum in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(signum, signal.SIG_DFL)
    os.execve(words[0], words, os.environ)  # noqa: S606 - without a shell, as it was meant


def _learn(path: str, base: set[str]) -> None:
    """Note which installed modules a job has imported, in their order, for the jobs that follow it."""
    names = []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        origin = getattr(spec, "origin", None)
        if name not in base and isinstance(origin, str) and _is_installed(origin):
            names.append(name)
    try:
        with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
            json.dump(names, file)
        os.replace(f"{path}.{os.getpid()}", path)
    except OSError:
        return  # the next one will learn


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def _own_frames_removed(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


def main() -> None:
    """Serve; in a child, run its job. What a job raises is told without us, and ends the interpreter."""
    with socket.socket(fileno=_SOCKET_FD) as line:
        line.set_inheritable(False)
        try:
            worker = Worker(line)
            worker.prepare()
            job = worker.serve()
        except UnfitError as error:
            line.send(json.dumps(["unfit", str(error)]).encode())
            job = None
    if job is None:
        os._exit(0)  # nothing here is anybody's to tidy up
    del sys.modules[__name__]
    status = 0
    try:
        job.run()
    except SystemExit as error:
        status = _status_of(error)
    except BaseException as error:
        _show(error)
        if isinstance(error, KeyboardInterrupt):
            sys.excepthook = lambda *_told: None
            raise
        status = 1
    job.end(status)
    sys.exit(status)


def _status_of(error: SystemExit) -> int:
    """What an interpreter makes of the argument of sys.exit."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """Tell of an exception that nobody has caught, as if it had begun with the job."""
    error.__traceback__ = sys.last_traceback = _own_frames_removed(error.__traceback__)
    sys.last_type, sys.last_value = type(error), error
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    sys.excepthook(type(error), error, sys.last_traceback)
