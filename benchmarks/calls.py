"""Makes one trivial call for each line of standard input, each in a fresh process, four at once."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterable
from concurrent.futures import Executor, ProcessPoolExecutor

PLACES = 4


def make_calls(executor: Executor, lines: Iterable[str]) -> int:
    """Call `len` with each line; how many answers came."""
    with executor:
        return sum(1 for _length in executor.map(len, lines))


def main() -> None:
    """Make the calls through the executor that is named."""
    lines = sys.stdin.readlines()
    executor: Executor
    if sys.argv[1] == "stoker":
        import stoker

        executor = stoker.Executor(gpus="0,1,2,3", progress=False)
    else:
        context = multiprocessing.get_context("spawn")
        executor = ProcessPoolExecutor(PLACES, mp_context=context, max_tasks_per_child=1)
    assert make_calls(executor, lines) == len(lines)


if __name__ == "__main__":
    main()
