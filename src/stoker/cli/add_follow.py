"""`stoker add --follow`: a job's output as it comes, and its success as the exit code."""

from __future__ import annotations

import sys

from stoker.cli.verbs.log import print_stream, tell_gone
from stoker.client.client import Client
from stoker.core.lifecycle import State


def follow(job: int) -> int:
    """Show a job's output until it is over; 0 if it has succeeded."""
    name = str(job)
    try:
        with Client(tell=tell_gone) as client:
            attempt = 1
            while True:
                # One after another: the first may have ended before we could ask.
                print_stream(client.log(name, attempt, follow=True))
                found = client.show(name)
                if found.attempt <= attempt:
                    break
                attempt += 1
    except KeyboardInterrupt:
        sys.stderr.write(
            f"\nstoker: job {job} goes on: stoker log -f {job}, or stoker kill {job}\n"
        )
        return 130
    if found.state is State.DONE:
        return 0
    reason = f": {found.reason}" if found.reason else ""
    sys.stderr.write(f"stoker: job {job} {found.state.value}{reason}\n")
    return 1
