"""`stoker jupyter`: a Jupyter server on leased GPUs."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from stoker.cli.arguments import Args, arg
from stoker.cli.interactive_job import InteractiveJob, SignalError, limits_of
from stoker.cli.messages import note
from stoker.cli.safe_text import one_line
from stoker.cli.verbs.shell import LIMITS, TIMES
from stoker.errors import StokerError
from stoker.interactive.session import LINK, Unpacker

if TYPE_CHECKING:
    from stoker.wire import JobDetail

SUMMARY = """\
Start Jupyter on leased GPUs and print its link. It is a job of the queue: it goes on after you log out,
is ended with its kernels at its time limit, and gives its GPUs back when it is idle."""
EXAMPLES = """\
  stoker jupyter                      one GPU, for 8 hours at most
  stoker jupyter -g 2 --for 3h        two GPUs, for three hours
  stoker jupyter -- --allow-root      further words go to Jupyter
  stoker kill jupyter                 end it
"""
ARGUMENTS = (
    *TIMES,
    *LIMITS,
    arg("words", nargs="...", metavar="WORD", help="arguments for Jupyter"),
)
_PROGRAMS = ("jupyter-lab", "jupyter-notebook")


def run(args: Args) -> int:
    """Start the server and print its link."""
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    program = _find_program()
    args.time_limit = getattr(args, "for")
    options = {**limits_of(args), "name": args.name or "jupyter"}
    job = InteractiveJob("jupyter", [program, *words], options, signal.SIGTERM)
    try:
        link = job.connect(_read_link)
    except SignalError as error:
        return 128 + int(error.args[0])
    if link is None:
        raise StokerError(
            f"Jupyter did not start: {_reason(job.outcome())}; see: stoker log {job.id}"
        )
    print(link)
    host = os.uname().nodename
    port = link.partition("127.0.0.1:")[2].partition("/")[0]
    note(
        f"job {job.id} runs Jupyter; stoker kill {job.id} ends it; from another machine first:"
        f" ssh -L {port}:127.0.0.1:{port} {host}"
    )
    return 0


def _reason(ended: JobDetail | None) -> str:
    """Say how a server ended, with its last words: often they name the remedy."""
    if ended is None:
        return "it ended"
    said = one_line((ended.last_line or "").encode())
    return ": ".join(filter(None, (ended.reason or "it ended", said)))


def _find_program() -> str:
    from stoker.executors.command import find_program

    for name in _PROGRAMS:
        found = find_program(name, os.environ.get("PATH", os.defpath))
        if found is not None:
            return os.path.abspath(found)
    raise StokerError("Jupyter is not installed in your Python: pip install jupyterlab")


def _read_link(job: InteractiveJob) -> str | None:
    """Return the link that the job's process sends; None if it ends before."""
    connection = job.accept()
    unpacker = Unpacker()
    while data := connection.recv(4096):
        for kind, payload in unpacker.feed(data):
            if kind == LINK:
                return payload.decode()
    return None
