"""Time until the prompt of `stoker shell`, compared with `bash` in the same kind of terminal."""

from __future__ import annotations

import dataclasses
import os
import pty
import select
import time
from typing import TYPE_CHECKING

from benchmarks.errors import BenchError
from benchmarks.measure import Contestant, interleave, spread
from benchmarks.peers import need_program
from benchmarks.queues.stoker import open_queue
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

MIN_ROUNDS = 30
MOST_OVER_BASH_S = 0.3
_PROMPT = "bench-prompt> "
_PATIENCE_S = 30.0


def run(arena: Arena) -> Result:
    """Open one shell after the other, in turns; a GPU is free each time."""
    arena = dataclasses.replace(arena, rounds=max(arena.rounds, MIN_ROUNDS))
    bash = need_program("bash", "bash")
    with open_queue(arena) as queue:
        # A shell without files of the user: both contestants run the same program.
        script = os.path.abspath(os.path.join(arena.folder, "plain-bash"))
        with open(script, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\nexec {bash} --norc --noprofile -i\n")
        os.chmod(script, 0o755)
        env = {**queue.env, "PS1": _PROMPT, "TERM": "xterm"}
        contestants = [
            Contestant(name=name, argv=argv, stdin=os.devnull, jobs=1, env=env)
            for name, argv in (
                ("bash", [script]),
                ("stoker shell", [queue.program, "shell", "--shell", script]),
            )
        ]

        def open_one(contestant: Contestant) -> float:
            wall_s = time_prompt(contestant)
            queue.settle()
            return wall_s

        for contestant in contestants:
            open_one(contestant)
        walls = interleave(contestants, arena.rounds, open_one, arena.progress)
    return _result(arena, walls)


def time_prompt(contestant: Contestant) -> float:
    """Return the seconds from the start of a program to its prompt on a new terminal; end it."""
    begun = time.perf_counter()
    pid, terminal = pty.fork()
    if not pid:
        os.execve(contestant.argv[0], list(contestant.argv), dict(contestant.env))
    try:
        shown = b""
        while _PROMPT.encode() not in shown:
            if not select.select([terminal], [], [], _PATIENCE_S)[0]:
                raise BenchError(f"{contestant.name} showed no prompt: {shown!r}")
            shown += os.read(terminal, 65536)
        wall_s = time.perf_counter() - begun
        os.write(terminal, b"exit\n")
        _read_to_end(terminal)
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    return wall_s


def _read_to_end(terminal: int) -> None:
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:  # how Linux says that the other end of a terminal is closed
        return


def _result(arena: Arena, walls: dict[str, list[float]]) -> Result:
    rows = []
    for name, values in walls.items():
        wall_ms = spread(values).scaled(1e3)
        rows.append([name, f"{wall_ms.median:.1f} ({wall_ms.q1:.1f} – {wall_ms.q3:.1f})"])
    pairs = zip(walls["stoker shell"], walls["bash"], strict=True)
    return Result(
        name="shell",
        what=f"Start to prompt on a terminal, with a daemon that runs already and a free GPU,"
        f" {arena.rounds} interleaved rounds.",
        details=Table(("contestant", "ms (quartiles)"), rows),
        figures=[
            Figure(
                name="prompt of stoker shell − prompt of bash",
                spread=spread([ours - theirs for ours, theirs in pairs]),
                target=Target(Bound.AT_MOST, MOST_OVER_BASH_S),
                unit="s",
            )
        ],
        commands=["bash --norc --noprofile -i", f"{arena.peers.stoker.path} shell"],
    )
