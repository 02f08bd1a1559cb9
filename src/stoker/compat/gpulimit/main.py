"""`gpulimit COMMAND …`: gpulimit's command line, with Stoker's queue behind it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from stoker.cli.main import report_errors
from stoker.client.client import Client
from stoker.compat.gpulimit import change, view
from stoker.compat.gpulimit.add import add
from stoker.compat.gpulimit.tasks import translate
from stoker.errors import NotFoundError, StokerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROGRAM = "gpulimit"
_MANY = 100_000
_SYNONYMS = {"-h": "help", "--help": "help", "mv": "move"}


class Command(NamedTuple):
    """A command: its usage, what it does, Stoker's name for it, and how many words it takes."""

    usage: str
    text: str
    native: str
    run: Callable[[Client, Sequence[str]], int]
    least: int = 0
    most: int = _MANY


def _help(_client: Client, words: Sequence[str]) -> int:
    commands = [_find(words[0])] if words else _COMMANDS.values()
    print(
        "gpulimit: Stoker's queue behind gpulimit's commands; on the right what Stoker calls them."
    )
    print("gpulimit_server is: stoker daemon start (the first add starts it by itself).\n")
    for command in commands:
        print(f"  gpulimit {command.usage:<37} {command.text:<40} {command.native}")
    if words:
        sys.stdout.write(_DETAILS.get(_SYNONYMS.get(words[0], words[0]), ""))
    return 0


_COMMANDS = {
    "help": Command("help [CMD]", "show this", "stoker -h", _help, most=1),
    "add": Command(
        "add [--priority=N] [--logpath=P] CMDS", "add a task; lower N runs first", "stoker add", add
    ),
    "ls": Command("ls [--all]", "list tasks; --all: whole commands", "stoker ls", view.ls, most=1),
    "show": Command("show ID", "show a task", "stoker show", view.show, 1, 1),
    "rm": Command("rm ID", "remove a task; if it runs, kill it", "stoker rm --kill", change.rm, 1),
    "kill": Command("kill ID | 3-7 | all", "kill tasks", "stoker kill", change.kill, 1),
    "move": Command(
        "move ID [INDEX=0]", "put a task at this place", "stoker move", change.move, 1, 2
    ),
    "set": Command(
        "set [NAME [VALUE]]", "show or change parameters", "stoker config", change.set_, most=2
    ),
    "start": Command(
        "start [ID]",
        "force a task's start; restart or resume it",
        "stoker start | retry | resume",
        change.start,
    ),
    "log": Command(
        "log ID | main", "print output; main: the server's", "stoker log", view.log, 1, 1
    ),
    "status": Command(
        "status", "show the machine", "stoker status, stoker gpus", view.status, most=0
    ),
    "debug": Command("debug ID", "tell why a task could not start", "stoker why", view.debug, 1, 1),
    "clean": Command(
        "clean [STATUS…]",
        "remove tasks: complete and CMD_ERROR",
        "stoker rm -s STATE",
        change.clean,
    ),
}
_DETAILS = {
    "add": """
options:
  --priority=N                                   lower numbers run first (default: 5)
  --logpath=PATH                                 a file, or a folder for ID.log (default: /tmp/gpulimit)

examples:
  gpulimit add python3 main.py --lambda=12       with this folder and environment
  gpulimit add --priority=1 python3 main.py      before the others
  gpulimit add --logpath="./" python3 main.py    output in this folder
""",
    "ls": """
options:
  --all                                          show commands in full length

examples:
  gpulimit ls                                    running, waiting and ended tasks
""",
    "show": """
examples:
  gpulimit show 3                                pid, GPU, status and output file
""",
    "rm": """
examples:
  gpulimit rm 3
""",
    "kill": """
examples:
  gpulimit kill 3                                one
  gpulimit kill 3-7                              a range
""",
    "move": """
examples:
  gpulimit move 3                                next to start
  gpulimit move 3 2                              third
""",
    "set": """
options:
  MAX_ERR_TIMES                                  runs of a task in all if it fails
  SAFETY_KEEP_MEMORY                             the share of RAM to be free for a start
  SAFETY_KEEP_GPU_MEMORY                         the share of a GPU's memory to be free for a start
  MAX_RUNNING_TASKS                              tasks on a GPU at once; -1: any
  TIMER_POLLING_TIME                             kept, but nothing polls

examples:
  gpulimit set                                   all parameters
  gpulimit set SAFETY_KEEP_GPU_MEMORY 0.25
""",
    "start": """
examples:
  gpulimit start 3                               now, whatever the thresholds say
  gpulimit start                                 plan once more
""",
    "log": """
examples:
  gpulimit log 3                                 a task's output
  gpulimit log main                              the server's
""",
    "debug": """
examples:
  gpulimit debug 3                               of a task in CMD_ERROR
""",
}


def main() -> int:
    """Run a command; 0 only if it was done. All messages go to standard output."""
    return report_errors(PROGRAM, lambda: _run(sys.argv[1:]))


def _run(words: Sequence[str]) -> int:
    name, *rest = words or ["help"]
    try:
        command = _find(name)
        if not command.least <= len(rest) <= command.most:
            raise UsageError(f"usage: gpulimit {command.usage}")
        with Client(start=command.run is add) as client:
            return command.run(client, rest)
    except NotFoundError:
        print(f"[error]: can not found id {','.join(rest)} in task queue.")
        return 1
    except StokerError as error:
        print(f"[error]: {translate(str(error))}")
        return error.exit_code


def _find(name: str) -> Command:
    command = _COMMANDS.get(_SYNONYMS.get(name, name))
    if command is None:
        raise UsageError(f"no cmd found: {name}; gpulimit help lists them")
    return command
