"""The process that `fork_server.ForkServer` starts: it has imported Stoker, and forks for each request.

It runs as a script and imports nothing from the tests. A request is one message on the socket of argument 1
with six descriptors: a file with the pickled request, standard input, output and error, a pipe for the exit
status, and what the child inherits (`--ready-fd` of a daemon; /dev/null for a verb).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import pickle
import pkgutil
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

import stoker.cli.verbs
import stoker.daemon.main
from stoker.cli.main import main as run_verb
from stoker.daemon.preload import MODULES

ALSO = ("stoker.cli.parser", "stoker.client.client", "rich.console", "rich.table", "pynvml")


def import_ahead() -> None:
    """Import what verbs and the daemon import when they need it."""
    verbs = pkgutil.iter_modules(stoker.cli.verbs.__path__, "stoker.cli.verbs.")
    for name in (*(verb.name for verb in verbs), *MODULES, *ALSO):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def serve(requests: socket.socket) -> Callable[[], int] | None:
    """Fork for each request; what a child has to run, or None when no more requests come."""
    living: dict[int, tuple[int, int]] = {}
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for fd, _event in poll.poll():
            if fd in living:
                pid, status_fd = living.pop(fd)
                poll.unregister(fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                tell(status_fd, f"{code}\n")
                os.close(status_fd)
                os.close(fd)
                continue
            message, fds, _flags, _address = socket.recv_fds(requests, 1, 6)
            if not message:
                return None
            pid = os.fork()
            if not pid:
                requests.close()
                for pidfd, (_pid, status_fd) in living.items():
                    os.close(pidfd)
                    os.close(status_fd)
                return prepare(fds)
            tell(fds[4], f"{pid}\n")
            pidfd = os.pidfd_open(pid)
            living[pidfd] = (pid, fds[4])
            poll.register(pidfd, select.POLLIN)
            for each in (*fds[:4], fds[5]):
                os.close(each)


def tell(fd: int, text: str) -> None:
    """Write to a test, if it still reads."""
    with contextlib.suppress(BrokenPipeError):
        os.write(fd, text.encode())


def prepare(fds: list[int]) -> Callable[[], int]:
    """Make the child what a fresh process would be; what it has to run."""
    request_fd, stdin, stdout, stderr, status_fd, inherited = fds
    os.close(status_fd)
    with open(request_fd, "rb") as file:
        request = pickle.load(file)
    for number, fd in enumerate((stdin, stdout, stderr)):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environb.update(request["env"])
    os.chdir(request["cwd"])
    words = [os.fsdecode(word) for word in request["words"]]
    if request["is_daemon"]:
        os.setsid()
        os.set_inheritable(inherited, True)
        sys.argv = ["stoker.daemon", *words, "--ready-fd", str(inherited)]
        return stoker.daemon.main.main
    os.close(inherited)
    sys.path.insert(0, os.getcwd())  # as `python -m` does
    sys.argv = ["stoker", *words]
    return run_verb


def main() -> None:
    """Serve requests; in a child, run the verb or the daemon."""
    del sys.path[0]  # the folder of this script
    import_ahead()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        program = serve(requests)
    if program:
        run_to_end(program)


def run_to_end(program: Callable[[], int]) -> NoReturn:
    """Run a program and end as Python does, but leave its memory to the kernel: to free it takes long."""
    code = 120  # as Python's own, if what was written cannot be flushed
    try:
        found = exit_code_of(program)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if not stream.closed:
                stream.flush()
        code = found
    finally:
        os._exit(code)


def exit_code_of(program: Callable[[], int]) -> int:
    """Run a program; what Python would make of how it ends."""
    try:
        return program()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    return 1


if __name__ == "__main__":
    main()
