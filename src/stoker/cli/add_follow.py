"""`stoker add --follow`: shows a job's output until it ends."""

from __future__ import annotations

import sys

from stoker.cli.messages import note
from stoker.cli.verbs.log import print_stream
from stoker.client.client import Client
from stoker.core.lifecycle import State


def follow(job: int) -> int:
    """Show a job's output until it ends; 0 if it has succeeded."""
    name = str(job)
    try:
        with Client(tell=note) as client:
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
