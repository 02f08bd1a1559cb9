"""Runs the benchmarks of Stoker and its peers: `make bench`, or `python benchmarks/run.py --help`."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks.arena import (
    Arena,
    check_gpus,
    check_on_disk,
    common_environment,
    remove_homes,
    say,
    warn_of_removal,
)
from benchmarks.cases import CASES, LONG
from benchmarks.errors import BenchError
from benchmarks.machine import Bystanders, describe_machine, describe_moment, describe_noise
from benchmarks.peers import Peers, find_peers
from benchmarks.process import become_subreaper
from benchmarks.report import (
    Table,
    all_hold,
    render_result,
    render_table,
    render_verdict,
)
from benchmarks.sections import replace_header, replace_section

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = ".bench"
RESULTS = os.path.join("benchmarks", "RESULTS.md")
ROUNDS = 15
QUICK_ROUNDS = 3
METHOD = """\
In each round every contestant runs once, in turns; a ratio is taken within a round, and its median
over the rounds decides. Stoker runs with its store on disk, its leases and its GPU watching on
(4 fake GPUs behind NVML). All contestants read a file on stdin, share one environment, and write to
/dev/null. CPU time is that of the whole process tree, a daemon's among it. Every daemon has a home
of its own and is stopped with its jobs. Paths are relative to the repository."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What was asked for."""

    cases: list[str]
    rounds: int
    quick: bool

    @property
    def is_kept(self) -> bool:
        """Tell whether RESULTS.md may keep the figures of the run."""
        return not self.quick and self.rounds >= ROUNDS


def main() -> int:
    """Run the chosen benchmarks; 0 if every figure holds, 1 if not."""
    options = parse_arguments()
    os.chdir(ROOT)
    become_subreaper()
    try:
        return run(options)
    except BenchError as error:
        say(f"benchmarks: {error}")
        return 1
    except KeyboardInterrupt:
        say("benchmarks: interrupted; what was measured is kept")
        return 130
    finally:
        remove_homes(FOLDER)


def run(options: Options) -> int:
    """Print each result as it comes, and keep it; what is measured later replaces it."""
    os.makedirs(FOLDER, exist_ok=True)
    file_system = check_on_disk(FOLDER)
    warn_of_removal(FOLDER)
    peers = find_peers(FOLDER)
    arena = Arena(
        folder=FOLDER,
        peers=peers,
        env=common_environment(FOLDER),
        rounds=options.rounds,
        quick=options.quick,
    )
    check_gpus(peers.stoker.path, arena.env)
    heading = header(options, peers, file_system)
    print(heading, flush=True)
    if options.is_kept:
        replace_header(RESULTS, heading)
    results = []
    for name in options.cases:
        if options.quick and name in LONG:
            print(f"## {name}\n\nLeft out by `--quick`: it takes minutes.\n", flush=True)
            continue
        say(f"{name} …")
        bystanders = Bystanders()
        result = CASES[name](arena)
        results.append(result)
        text = (
            f"{render_result(result)}\n{describe_noise(bystanders.share())} {describe_moment()}\n"
        )
        print(text, flush=True)
        if options.is_kept:
            replace_section(RESULTS, name, text)
    verdict = render_verdict(results)
    print(verdict, flush=True)
    if not options.is_kept:
        say(f"{RESULTS} is left as it was: only {ROUNDS} rounds or more are kept")
    elif set(options.cases) == set(CASES):
        replace_section(RESULTS, "Verdict", verdict)
    return 0 if all_hold(results) else 1


def header(options: Options, peers: Peers, file_system: str) -> str:
    """Return what the figures were taken on and with."""
    programs = Table(
        ("program", "path", "version"),
        [(peer.name, peer.path, peer.version) for peer in peers.all()],
    )
    typed = " ".join([os.path.relpath(sys.executable), *sys.orig_argv[1:]])
    return "\n\n".join(
        [
            "# Benchmarks: Stoker beside its peers",
            f"`{typed}`, {options.rounds} rounds unless a benchmark says otherwise.",
            METHOD,
            render_table(describe_machine(file_system)),
            render_table(programs) + "\n",
        ]
    )


def parse_arguments() -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="Measure Stoker beside its peers.",
        epilog="example: python benchmarks/run.py --quick throughput_shell gap",
    )
    parser.add_argument("cases", nargs="*", metavar="BENCH", help=f"of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, help=f"default {ROUNDS}, {QUICK_ROUNDS} if --quick")
    parser.add_argument("--quick", action="store_true", help="short inputs, no million lines")
    given = parser.parse_args()
    unknown = [name for name in given.cases if name not in CASES]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(CASES)}")
    if given.rounds is not None and given.rounds < 1:
        parser.error("--rounds must be at least 1")
    default = QUICK_ROUNDS if given.quick else ROUNDS
    return Options(
        cases=list(dict.fromkeys(given.cases)) or list(CASES),
        rounds=given.rounds or default,
        quick=given.quick,
    )


if __name__ == "__main__":
    sys.exit(main())
