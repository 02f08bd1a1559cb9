"""`stoker sweep --foreground`: runs a sweep without the daemon."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stoker.cli.arguments import Args
from stoker.cli.messages import note
from stoker.cli.verbs.run import (
    check_gpu_mem,
    check_host,
    find_cwd,
    find_slots,
    make_environment,
)
from stoker.cli.verbs.sweep import note_warm
from stoker.errors import UsageError

if TYPE_CHECKING:
    from stoker.core.job import Request
    from stoker.store.foreground_runs import ForegroundRun as Record
    from stoker.sweeps.plan import Run, Sweep
    from stoker.wire import Submission


def run_here(args: Args, sweep: Sweep, common: Submission) -> int:
    """Run what has not succeeded yet; 0 only if all runs succeed."""
    _check(args, common)
    from stoker.supervisor.launcher import start_supervisor

    supervisor = start_supervisor()
    from stoker.cli.run_output import Output
    from stoker.engine.command_reader import Source
    from stoker.engine.foreground_engine import ForegroundSettings
    from stoker.executors.command import resolve_shell
    from stoker.sweep_results.collect import write_manifest

    nvml, slots = find_slots(args.slots, args.jobs_per_gpu, args.gpus or None)
    request = _request(common)
    check_gpu_mem(request, nvml, slots)
    capacity = check_host(request)
    write_manifest(sweep)
    runs, passed_over = _choose_runs(args, sweep)
    if not runs:
        print(f"sweep {sweep.name}: nothing to run: {passed_over}")
        return 0
    if passed_over:
        note(f"sweep {sweep.name}: {passed_over}")
    note_warm(args, sweep)
    with tempfile.TemporaryFile() as file:
        env = {**make_environment(request, slots), **sweep.variables}
        folders = _Folders(runs, env)
        folders.write(file.fileno())
        source = Source(file.fileno(), null=True, name="the sweep")
        given = Args(logs=None, tag=False, json=False, null=True, gpus=args.slots, command=None)
        output = Output(given, source)
        record, resumes = _open_record(sweep, again=args.rerun == "all")
        settings = ForegroundSettings(
            slots=slots,
            shell=resolve_shell(args.shell),
            env=env,
            cwd=find_cwd(),
            request=request,
            log_of=output.log_of,
            folder_of=folders.make,
            max_failures=args.max_failures,
            resume=resumes,
            warm=tuple(common.warm),
            capacity=capacity,
        )
        return output.run(record, settings, supervisor, nvml)


def _request(common: Submission) -> Request:
    """Return what each run asks for."""
    from stoker.core.job import Options, Request

    return Request(
        timeout_s=common.timeout_s,
        retries=common.retries,
        share=None if common.share == "never" else common.share,
        gpu_mem=common.gpu_mem_bytes,
        cpus=common.cpus,
        mem_bytes=common.mem_bytes,
        options=Options(image=common.image),
    )


def _check(args: Args, common: Submission) -> None:
    """Refuse options that only the queue has."""
    if common.nodes or common.on or common.node_labels:
        raise UsageError(
            "--node, --on and --node-label are for the queue: with --foreground name GPUs, --slots 0,1"
        )
    if args.on_nan or args.stall or args.idle:
        raise UsageError(
            "--on-nan, --stall and --idle are for the queue: leave them or --foreground out"
        )
    if args.preemptible or args.preempt or args.checkpoint or args.signal or args.grace:
        raise UsageError(
            "--preemptible, --preempt, --checkpoint, --signal and --grace are for the queue:"
            " leave them or --foreground out"
        )
    if args.rerun in ("failed", "none"):
        raise UsageError(
            f"--rerun {args.rerun} is for the queue: --foreground takes only --rerun all"
        )


class _Folders:
    """Makes the folder of each command just before the command starts."""

    def __init__(self, runs: Sequence[Run], env: Mapping[str, str]) -> None:
        self._runs = runs
        self._env = env
        self._known: dict[bytes, tuple[str, str]] = {}

    def write(self, fd: int) -> None:
        """Write all commands to a file, each with a NUL behind it, and rewind the file."""
        from stoker.engine.command_reader import Splitter

        for run in self._runs:
            line = run.own_command.encode() + b"\0"
            for command in Splitter(null=True).feed(line):
                self._known[command] = run.dir, run.params_json
            os.write(fd, line)
        os.lseek(fd, 0, os.SEEK_SET)

    def make(self, command: bytes) -> str | None:
        """Make the folder of a command, with its parameters inside."""
        from stoker.engine.run_folder import make_run_folder

        folder, params = self._known[command]
        make_run_folder(folder, params, self._env)
        return folder


def _choose_runs(args: Args, sweep: Sweep) -> tuple[list[Run], str]:
    """Return the runs that the queue neither has nor has done, and a description of the others.

    Runs that have succeeded in the foreground are in the record.
    """
    from stoker.cli.verbs.sweep import ask_queue
    from stoker.client.client import Client
    from stoker.sweeps.earlier_runs import Rerun

    with Client(restart=False) as client:
        history, _places = ask_queue(client, sweep)
    runs = list(history.choose(sweep, Rerun(args.rerun or "undone")))
    return runs, history.describe_skipped(sweep.count)


def _open_record(sweep: Sweep, *, again: bool) -> tuple[Record, bool]:
    """Open the record of the last run and return True with it, or create one."""
    from stoker.home import find_home
    from stoker.store import foreground_runs
    from stoker.sweeps.earlier_runs import record_key

    key = record_key(find_cwd(), sweep.name)
    earlier = None if again else foreground_runs.latest(find_home(), key)
    if earlier is not None:
        return earlier, True
    return foreground_runs.create(find_home(), key), False
