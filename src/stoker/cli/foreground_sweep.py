"""A sweep without the queue: its runs in this process, each in its folder."""

from __future__ import annotations

import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker.cli.verbs.run import check_gpu_mem, find_cwd, find_slots, make_environment
from stoker.errors import UsageError

if TYPE_CHECKING:
    from stoker.store.foreground_runs import ForegroundRun as Record
    from stoker.sweeps.plan import Run, Sweep
    from stoker.wire import Submission


def run_here(args: Namespace, sweep: Sweep, common: Submission) -> int:
    """Run a sweep; 0 only if all of it succeeded. Again, it goes on with what has not."""
    if common.nodes or common.on or common.node_labels:
        raise UsageError(
            "--node, --on and --node-label are for the queue: with --foreground name GPUs, --slots 0,1"
        )
    if common.gpus > 1:
        raise UsageError("--foreground: pairs of GPUs are given as --slots 0+1,2+3, not by -g")
    if args.rerun in ("failed", "none"):
        raise UsageError(f"--rerun {args.rerun} is for the queue: --foreground knows only all")
    from stoker.supervisor.launcher import start_supervisor

    supervisor = start_supervisor()
    from stoker.cli.run_output import Output
    from stoker.core.job import Request
    from stoker.engine.command_reader import Source
    from stoker.engine.foreground_engine import ForegroundEngine, ForegroundSettings
    from stoker.executors.command import resolve_shell
    from stoker.sweep_results.collect import note_sweep

    slot_args = Namespace(gpus=args.slots, jobs_per_gpu=args.jobs_per_gpu)
    nvml, slots = find_slots(slot_args)
    request = Request(
        timeout_s=common.timeout_s,
        retries=common.retries,
        share=None if common.share == "never" else common.share,
        gpu_mem=common.gpu_mem_bytes,
    )
    check_gpu_mem(request, nvml, slots)
    note_sweep(sweep)
    runs, passed_over = _left(args, sweep)
    if not runs:
        print(f"sweep {sweep.name}: nothing to run: {passed_over}")
        return 0
    if passed_over:
        sys.stderr.write(f"stoker: sweep {sweep.name}: {passed_over}\n")
    with tempfile.TemporaryFile() as file:
        folders = _Folders(runs)
        folders.write(file.fileno())
        source = Source(file.fileno(), null=True, name="the sweep")
        output = Output(
            Namespace(logs=None, tag=False, json=False, null=True, gpus=args.slots), source
        )
        record, resumes = _record(sweep, again=args.rerun == "all")
        output.open(record)
        settings = ForegroundSettings(
            slots=slots,
            shell=resolve_shell(args.shell),
            env=make_environment(request),
            cwd=find_cwd(),
            request=request,
            log_of=output.log_of,
            folder_of=folders.make,
            max_failures=args.max_failures,
            resume=resumes,
            warm=tuple(common.warm),
        )
        foreground = ForegroundEngine(record, source, settings, output.report, supervisor)
        try:
            return 0 if output.follow(foreground, nvml) else 1
        finally:
            record.close()


class _Folders:
    """Knows the folder of each command, and makes it when the command is to start."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs
        self._known: dict[bytes, tuple[str, str]] = {}

    def write(self, fd: int) -> None:
        """Write all commands to a file, each ending in NUL, and go back to its beginning."""
        from stoker.engine.command_reader import Splitter

        for run in self._runs:
            line = run.command.encode() + b"\0"
            for command in Splitter(null=True).feed(line):
                self._known[command] = run.dir, run.params_json
            os.write(fd, line)
        os.lseek(fd, 0, os.SEEK_SET)

    def make(self, command: bytes) -> str | None:
        """The folder of a command, with its parameters inside."""
        from stoker.engine.run_folder import make_run_folder

        folder, params = self._known[command]
        make_run_folder(folder, params)
        return folder


def _left(args: Namespace, sweep: Sweep) -> tuple[list[Run], str]:
    """The runs that the queue has not done and does not have, and what is to be told of the others.

    What was done in the foreground, the record tells.
    """
    from stoker.cli.verbs.sweep import ask_queue
    from stoker.client.client import Client
    from stoker.sweeps.earlier_runs import Rerun

    with Client(restart=False) as client:
        history, _places = ask_queue(client, sweep)
    runs = list(history.choose(sweep, Rerun(args.rerun or "undone")))
    return runs, history.tell_passed_over(sweep.count)


def _record(sweep: Sweep, *, again: bool) -> tuple[Record, bool]:
    """The record to go on with, if there is one, else a new one."""
    from stoker.home import find_home
    from stoker.store import foreground_runs
    from stoker.sweeps.earlier_runs import record_key

    key = record_key(find_cwd(), sweep.name)
    earlier = None if again else foreground_runs.latest(find_home(), key)
    return (
        (earlier, True)
        if earlier is not None
        else (foreground_runs.create(find_home(), key), False)
    )
