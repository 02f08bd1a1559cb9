"""`gpulimit add …`, `ls`, `kill` and the others: finds the command that is meant."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from stoker.ancestors.gpulimit import steer, view
from stoker.ancestors.gpulimit.add import add
from stoker.ancestors.gpulimit.tasks import retell
from stoker.cli.main import answer_for
from stoker.client.client import Client
from stoker.errors import NotFoundError, StokerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROGRAM = "gpulimit"
_MANY = 100_000
_SYNONYMS = {"-h": "help", "--help": "help", "mv": "move"}


class Command(NamedTuple):
    """A command: how it is written, what it does, what Stoker calls it, and how many words it takes."""

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
    return 0


_COMMANDS = {
    "help": Command("help [CMD]", "show this", "stoker -h", _help, most=1),
    "add": Command(
        "add [--priority=N] [--logpath=P] CMDS", "add a task; lower N runs first", "stoker add", add
    ),
    "ls": Command("ls [--all]", "list tasks; --all: whole commands", "stoker ls", view.ls, most=1),
    "show": Command("show ID", "show a task", "stoker show", view.show, 1, 1),
    "rm": Command("rm ID", "remove a task; if it runs, kill it", "stoker rm --kill", steer.rm, 1),
    "kill": Command("kill ID | 3-7 | all", "kill tasks", "stoker kill", steer.kill, 1),
    "move": Command(
        "move ID [INDEX=0]", "put a task at this place", "stoker move", steer.move, 1, 2
    ),
    "set": Command(
        "set [NAME [VALUE]]", "show or change parameters", "stoker config", steer.set_, most=2
    ),
    "start": Command(
        "start [ID]",
        "start a task next; restart or resume it",
        "stoker start | retry | resume",
        steer.start,
    ),
    "log": Command(
        "log ID | main", "print output; main: the server's", "stoker log", view.log, 1, 1
    ),
    "status": Command(
        "status", "show the machine", "stoker status, stoker gpus", view.status, most=0
    ),
    "debug": Command("debug ID", "tell why a task could not start", "stoker why", view.debug, 1, 1),
    "clean": Command(
        "clean [STATUS…]", "remove tasks: complete and CMD_ERROR", "stoker rm -s STATE", steer.clean
    ),
}


def main() -> int:
    """Do what the words say; 0 only if it was done. All messages come on standard output."""
    return answer_for(PROGRAM, lambda: _run(sys.argv[1:]))


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
        print(f"[error]: {retell(str(error))}")
        return error.exit_code


def _find(name: str) -> Command:
    command = _COMMANDS.get(_SYNONYMS.get(name, name))
    if command is None:
        raise UsageError(f"no cmd found: {name}; gpulimit help lists them")
    return command
