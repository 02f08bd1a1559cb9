"""Hydra's launcher: the jobs of a sweep as calls in the queue, or in a private engine."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, configure_log, setup_globals
from hydra.errors import CompactHydraException
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from stoker.client.client import Client
from stoker.core.lifecycle import is_final
from stoker.errors import StokerError, UsageError
from stoker.integrations.hydra_job import run_sweep_job
from stoker.integrations.hydra_options import (
    OPTION_NAMES,
    SweepOptions,
    read_launcher_options,
    spell_option,
)
from stoker.integrations.hydra_sweep import SweepFolder, SweepJob, make_jobs
from stoker.integrations.queue_options import make_submission, spelled_as
from stoker.integrations.queued_calls import describe_end, makes_call, spell_ids, wait_for_jobs
from stoker.sweep_results.collect import SweepManifest, save_manifest
from stoker.task.call_files import call_argv, name_of, write_call
from stoker.task.engine_session import EngineSession
from stoker.task.job import Job
from stoker.task.messages import Open
from stoker.task.run import run_to_end
from stoker.wire import NewJob, NewRun, to_wire

log = logging.getLogger(__name__)


def launch(
    context: HydraContext,
    task_function: TaskFunction,
    config: DictConfig,
    given: Mapping[str, Any],
    overrides: list[list[str]],
    first: int,
) -> list[JobReturn]:
    """Run jobs to their ends, and return how each ended; `given` are the options of the launcher.

    CompactHydraException, of which Hydra prints one line, for what a user has to mend; SystemExit after an
    interrupt. A job that failed is no error here: Hydra raises its exception when the sweeper reads the value
    that it returned.
    """
    setup_globals()
    _configure_log(context, config)
    try:
        options = read_launcher_options(given, str(config.hydra.job.name))
        jobs = make_jobs(context, config, overrides, first)
        folder = SweepFolder(os.path.abspath(str(config.hydra.sweep.dir)))
        save_manifest(folder.root, SweepManifest(name=options.project, cwd=os.getcwd()))
        return _Launch(context, task_function, options, folder).run(jobs)
    except StokerError as error:
        raise CompactHydraException(f"stoker: {error}") from error
    finally:
        _configure_log(context, config)


def _configure_log(context: HydraContext, config: DictConfig) -> None:
    more = {}
    if hasattr(context, "execution_whitelist"):  # from Hydra 1.4 on
        more["execution_whitelist"] = context.execution_whitelist
    configure_log(config.hydra.hydra_logging, config.hydra.verbose, **more)


class _Launch:
    """One call of the launcher: a sweep, or one batch of it."""

    def __init__(
        self,
        context: HydraContext,
        task_function: TaskFunction,
        options: SweepOptions,
        folder: SweepFolder,
    ) -> None:
        self._context = context
        self._task_function = task_function
        self._options = options
        self._folder = folder
        self._call_name = f"{name_of(task_function)} of {options.project}"

    def run(self, jobs: list[SweepJob]) -> list[JobReturn]:
        """Run the jobs that have no result yet, and return the results of all."""
        results = {}
        if self._options.resume:
            earlier = {job.number: job.load_success() for job in jobs}
            results = {number: found for number, found in earlier.items() if found is not None}
        left = [job for job in jobs if job.number not in results]
        if results:
            log.info(f"{len(results)} of {len(jobs)} jobs are done already")
        if left:
            engine = self._options.engine
            ends = self._run_in_queue(left) if engine is None else self._run_here(left, engine)
            results |= {job.number: job.load(ends[job.number]) for job in left}
        _log_failures([(job, results[job.number]) for job in jobs])
        return [results[job.number] for job in jobs]

    def _run_in_queue(self, jobs: list[SweepJob]) -> dict[int, Job]:
        with Client(start=True) as client:
            with self._folder.lock():
                self._queue_fresh(client, jobs)
            ids = {job.id: job for job in jobs if job.id is not None}
            try:
                log.info(f"{_count(jobs)} in Stoker's queue: stoker ls -P {self._options.project}")
                for job in jobs:
                    log.info(f"\t#{job.number} : {' '.join(job.overrides)} : job {job.id}")
                ends = wait_for_jobs(client, ids)
            except KeyboardInterrupt:
                stay, them = ("stays", "it") if len(ids) == 1 else ("stay", "them")
                self._exit_interrupted(
                    f"{_count(jobs)} ({spell_ids(ids)}) {stay} in the queue; to end {them}:"
                    f" stoker kill {spell_ids(ids)}; to wait for {them}"
                )
        return {
            job.number: describe_end(ends.get(number), number, job.name)
            for number, job in ids.items()
        }

    def _queue_fresh(self, client: Client, jobs: list[SweepJob]) -> None:
        """Queue the jobs that the queue does not have; refuse to queue others beside those of this folder."""
        if not self._options.resume:
            self._folder.refuse_live(client)
        fresh = [job for job in jobs if not self._take_over(client, job)]
        if fresh:
            self._submit(client, fresh)

    def _exit_interrupted(self, what: str) -> NoReturn:
        """Say how to come back, and exit as a program that Ctrl-C ends, without a traceback."""
        again = f"hydra.sweep.dir={self._folder.shown} hydra.launcher.resume=true"
        sys.stderr.write(f"stoker: interrupted: {what}: the same command with {again}\n")
        raise SystemExit(128 + signal.SIGINT)

    def _take_over(self, client: Client, job: SweepJob) -> bool:
        """Take over a job that an earlier sweep in this folder has queued, unless it has ended in vain."""
        note = job.read_note() if self._options.resume else None
        if note is None or note.id is None or not makes_call(client, note.id, job.path):
            return False
        job.id = note.id
        is_over = is_final(client.show(note.id).state)
        # It may have succeeded since the results were read.
        return not is_over or job.load_success() is not None

    def _submit(self, client: Client, jobs: list[SweepJob]) -> None:
        for job in jobs:
            self._write_call(job)
        new = [self._new_job(job) for job in jobs]
        submission = make_submission(new, self._options.queue, spell_option)
        with spelled_as(OPTION_NAMES):
            added = client.add(submission)
        ids = [number for part in added for number in range(part.first, part.last + 1)]
        for job, number in zip(jobs, ids, strict=True):
            job.id = number
            job.write_note()
        for notice in {part.notice for part in added if part.notice}:
            log.warning(notice)

    def _new_job(self, job: SweepJob) -> NewJob:
        words = call_argv(job.path, self._call_name)
        return NewJob(
            command=[to_wire(os.fsencode(word)) for word in words],
            name=job.name,
            run=NewRun(
                identity=job.identity, dir=to_wire(os.fsencode(job.folder)), params=job.params
            ),
        )

    def _run_here(self, jobs: list[SweepJob], engine: Open) -> dict[int, Job]:
        session = EngineSession(engine)
        log.info(f"{_count(jobs)} on {', '.join(session.slots) or 'this machine'}")
        ends: dict[int, Job] = {}

        def submit_all() -> None:
            for job in jobs:
                self._write_call(job)
                job.write_note()
            for job in jobs:
                log.info(f"\t#{job.number} : {' '.join(job.overrides)}")
                ends[job.number] = session.submit(
                    job.name,
                    self._options.request,
                    argv=call_argv(job.path),
                    folder=job.folder,
                    params=job.params,
                    warm=self._call_name if self._options.is_warm else None,
                )

        with self._folder.lock():
            try:
                run_to_end(session, submit_all)
            except KeyboardInterrupt:
                self._exit_interrupted("the jobs were ended; to run those that have not succeeded")
        return ends

    def _write_call(self, job: SweepJob) -> None:
        job.clear()
        arguments = (Singleton.get_state(), self._context, self._task_function, job.config)
        try:
            write_call(job.path, run_sweep_job, arguments)
        except TypeError as error:
            raise UsageError(f"{self._call_name}: {error.__cause__ or error}") from error


def _count(jobs: list[SweepJob]) -> str:
    return "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"


def _log_failures(ended: list[tuple[SweepJob, JobReturn]]) -> None:
    failed = [job for job, found in ended if found.status is not JobStatus.COMPLETED]
    if failed:
        first = failed[0]
        log.error(
            f"{len(failed)} of {len(ended)} jobs failed: #{first.number}"
            f" ({' '.join(first.overrides)}), log: {os.path.join(first.folder, 'log.txt')}"
            + (" …" if len(failed) > 1 else "")
        )
