"""`stoker log`: prints or follows the output of a job."""

from __future__ import annotations

import sys

from stoker.cli.arguments import Args, arg
from stoker.cli.messages import note, write_all
from stoker.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SUMMARY = """\
Print the output of a job, or the daemon's own log. On a terminal colours are kept and other escape
sequences are not; in a pipe every byte comes as it was written."""
EXAMPLES = """\
  stoker log 12                the output of job 12
  stoker log -f @              follow the last job until it ends; Ctrl-C leaves it running
  stoker log -n 20 train       the last 20 lines of the job named train
  stoker log 12 --attempt 1    what its first attempt wrote
  stoker log -f daemon         what the daemon has to say
"""
ARGUMENTS = (
    arg("id", metavar="ID", help="a job (an id, @, a name), or the word daemon"),
    arg("-f", "--follow", action="store_true", help="go on until the job is over"),
    arg("-n", "--lines", type=int, metavar="N", help="only the last N lines"),
    arg("--attempt", type=int, metavar="K", help="that of the K-th attempt (default: the last)"),
)


def run(args: Args) -> int:
    """Print the output."""
    if args.lines is not None and args.lines < 0:
        raise UsageError(f"-n {args.lines}: write 0 or more lines")
    if args.attempt is not None and args.attempt < 1:
        raise UsageError(f"--attempt {args.attempt}: attempts are counted from 1")
    if args.follow:
        from stoker.client.client import Client

        with Client(on_notice=note) as client:
            print_stream(client.log(args.id, args.attempt, args.lines, follow=True))
        return 0
    from stoker.client.session import Session, make_target
    from stoker.home import find_home

    target = make_target("log", job=args.id, attempt=args.attempt, tail=args.lines)
    _headers, chunks = Session(find_home()).stream(target)
    print_stream(chunks)
    return 0


def print_stream(chunks: Iterable[bytes]) -> None:
    """Write output to standard output: made safe on a terminal, unchanged in a pipe."""
    sys.stdout.flush()
    if not sys.stdout.isatty():
        for chunk in chunks:
            write_all(1, chunk)
        return
    from stoker.cli.safe_text import TextCleaner

    cleaner = TextCleaner()
    try:
        for chunk in chunks:
            write_all(1, _encode(cleaner.feed(chunk)))
    finally:
        write_all(1, _encode(cleaner.close()))


def _encode(text: str) -> bytes:
    return text.encode(sys.stdout.encoding or "utf-8", "replace")


def follow_job(job: int) -> int:
    """Show a job's output until it ends; 0 if it has succeeded."""
    from stoker.client.client import Client
    from stoker.core.lifecycle import State

    name = str(job)
    try:
        with Client(on_notice=note) as client:
            attempt = 1
            while True:
                # Attempt by attempt: the first may have ended before the first request.
                print_stream(client.log(name, attempt, follow=True))
                found = client.show(name)
                if found.attempt <= attempt:
                    break
                attempt += 1
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        note(f"job {job} goes on: stoker log -f {job} shows its output, stoker kill {job} ends it")
        return 130
    if found.state is State.DONE:
        return 0
    reason = f": {found.reason}" if found.reason else ""
    note(f"job {job} {found.state.value}{reason}")
    return 1
