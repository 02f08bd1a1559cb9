"""`gpulimit_server`: runs Stoker's daemon in the foreground."""

from __future__ import annotations

import os
import sys

from stoker.cli.main import report_errors
from stoker.cli.parser import Parser
from stoker.client.autostart import DAEMON, daemon_environment, daemon_log
from stoker.client.transport import Connection, NoDaemonError
from stoker.compat.gpulimit.tasks import DAEMON_OPTIONS
from stoker.detached import open_log
from stoker.errors import StokerError
from stoker.home import find_home
from stoker.interpreter import module_command

PROGRAM = "gpulimit_server"
SUMMARY = "Be the daemon that gpulimit's commands speak to, until Ctrl-C or SIGTERM; jobs run on."
EXAMPLES = """\
examples:
  gpulimit_server
  nohup gpulimit_server &

This is Stoker's daemon. Natively: stoker daemon start (in the background; stoker daemon stop ends it).
It uses GPUs also while others compute there (stoker config gpus-with-others).
"""


def main() -> int:
    """Become the daemon; its messages go to its log, which `gpulimit log main` prints."""
    return report_errors(PROGRAM, _run)


def _run() -> int:
    Parser(PROGRAM, SUMMARY, EXAMPLES).parse_args()
    home = find_home()
    try:
        Connection(home).close()
    except NoDaemonError:
        pass
    else:
        raise StokerError(f"it runs already, for {home}: gpulimit status shows it")
    print(f"start gpulimit server.\nlistening at {home}/stoker.sock", flush=True)
    log = open_log(daemon_log(home))
    terminal = os.dup(2)
    os.set_inheritable(terminal, True)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir("/")
    words = module_command(DAEMON, *DAEMON_OPTIONS, "--ready-fd", str(terminal))
    os.execve(sys.executable, words, daemon_environment(home))  # noqa: S606 - our own program
