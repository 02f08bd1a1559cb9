"""What turns cost a user who is alone on the machine: jobs per second with turns and without."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from benchmarks.arena import command_line
from benchmarks.measure import Contestant
from benchmarks.queues.race import STOKER_SCRIPT
from benchmarks.queues.stoker import open_queue
from benchmarks.race import pace_figure, standings
from benchmarks.report import Bound, Result, Target
from benchmarks.without_turns import write_program

if TYPE_CHECKING:
    from benchmarks.arena import Arena

LINE = "true"
JOBS = 5000
QUICK_JOBS = 1000
_GPUS = "0,1,2,3"
_LEAST = 0.99


def run(arena: Arena) -> Result:
    """Race Stoker against itself, through the queue and in the foreground."""
    jobs = QUICK_JOBS if arena.quick else JOBS
    python = os.path.join(os.path.dirname(os.path.abspath(arena.peers.stoker.path)), "python")
    programs = {
        "on" if turns else "off": write_program(arena.folder, python, turns=turns)
        for turns in (True, False)
    }
    with contextlib.ExitStack() as stack:
        contestants = []
        for turns, program in programs.items():
            queue = stack.enter_context(open_queue(arena, program))
            script = ["sh", "-c", STOKER_SCRIPT.format(stoker=program)]
            run_words = [program, "run", "--gpus", _GPUS]
            alone = stack.enter_context(arena.home())
            contestants += [
                Contestant(
                    name=f"{how}, turns {turns}",
                    argv=argv,
                    stdin=arena.lines("turns-cost", LINE, jobs),
                    jobs=jobs,
                    env=env,
                )
                for how, argv, env in (("queue", script, queue.env), ("run", run_words, alone))
            ]
        samples = arena.race(contestants, LINE)
    target = Target(Bound.AT_LEAST, _LEAST)
    return Result(
        name="turns_cost",
        what=f"{jobs} lines `{LINE}` at 4 slots, one user, {arena.rounds} interleaved rounds.",
        details=standings(samples, "queue, turns off"),
        figures=[
            pace_figure(samples, f"{how}, turns on", f"{how}, turns off", target)
            for how in ("queue", "run")
        ],
        # The programs are named by their whole path, so that daemons find them.
        commands=[
            command_line(contestant).replace(f"{os.getcwd()}/", "") for contestant in contestants
        ],
        notes=["Both are the same code; one has no turn board (`benchmarks/without_turns.py`)."],
    )
