"""`stoker top`: GPUs, jobs, sweeps and logs on one live screen of the terminal."""

from __future__ import annotations

import sys

from stoker.cli.arguments import Args
from stoker.errors import UsageError

SUMMARY = """\
Watch the GPUs with the jobs on them, the queue, its sweeps and the log of a job, and steer jobs by keys
and mouse. Needs pip install 'stoker[top]'; without it, this is stoker ls --watch."""
EXAMPLES = """\
  stoker top                  ? lists the keys, q ends it; jobs go on
  ssh -t box stoker top       on another machine
"""
ARGUMENTS = ()


def run(_args: Args) -> int:
    """Show the screen until the user quits."""
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("stoker top needs a terminal: use stoker ls in scripts")
    try:
        from stoker.cli.top.app import TopApp
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        from stoker.cli.ls_watch import watch
        from stoker.client.light_client import Selection

        return watch(Selection(), "GPUs, logs, keys and mouse: pip install 'stoker[top]'")
    TopApp().run()
    return 0
