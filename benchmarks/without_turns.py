"""Stoker with and without turns between users, to measure what they cost. Stoker itself has no such switch.

`write_program` writes a command like `stoker`. Without turns, its daemon and foreground runs have no board.
"""

from __future__ import annotations

import os
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_DAEMON = "--daemon"
_PROGRAM = """\
#!{python}
import sys
sys.path.append({root!r})
from benchmarks.without_turns import main
sys.exit(main({path!r}, turns={turns}))
"""


def write_program(folder: str, python: str, *, turns: bool) -> str:
    """Write the command into a folder, to be run by this interpreter; return its path."""
    name = f"stoker-turns-{'on' if turns else 'off'}"
    path = os.path.abspath(os.path.join(folder, name))
    with open(path, "w", encoding="utf-8") as file:
        file.write(_PROGRAM.format(python=python, root=_ROOT, path=path, turns=turns))
    os.chmod(path, 0o755)
    return path


def main(program: str, *, turns: bool) -> int:
    """Run the command line or, with --daemon, the daemon."""
    from stoker.client import autostart
    from stoker.gpus import turn_files

    if not turns:
        vars(turn_files)["TurnBoard"] = lambda: None
    if sys.argv[1:2] == [_DAEMON]:
        from stoker.daemon.main import main as run_daemon

        del sys.argv[1]
        return run_daemon()
    vars(autostart)["module_words"] = lambda _module, *arguments: [program, _DAEMON, *arguments]
    from stoker.cli.main import main as run_verb

    return run_verb()
