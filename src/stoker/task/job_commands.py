"""Commands and environments of the jobs of a private engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import msgspec

from stoker.containers.command import ContainerSettings, container_words, line_words
from stoker.core.job import Attempt
from stoker.core.sharing.parameters import CommandFacts
from stoker.engine.attempt_starts import LaunchSpec
from stoker.engine.command_log import start_log
from stoker.engine.framework_settings import share_gpu
from stoker.engine.queue import QueueEntry
from stoker.engine.run_folder import LOG, make_run_folder, run_variables
from stoker.executors.command import CommandLine, find_program, resolve_shell
from stoker.home import find_home
from stoker.store.foreground_runs import ForegroundRun
from stoker.task import messages
from stoker.task.options import decode_texts
from stoker.task.queue import TaskEntry
from stoker.warm.command import AUTO


class JobCommands:
    """Turns submitted jobs into what an executor starts."""

    def __init__(self, opening: messages.Open, record: ForegroundRun) -> None:
        self._record = record
        self.env = decode_texts(opening.env)
        self.env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        self.cwd = os.fsdecode(opening.cwd)
        self.shell = resolve_shell(opening.shell)
        self._path = self.env.get("PATH", os.defpath)
        self._command_line = CommandLine(self.shell, self._path)

    def kind_of(self, job: messages.Submit) -> CommandFacts:
        """Return what tells the kind of a job."""
        folder = None if job.folder is None else os.fsdecode(job.folder)
        params = None if job.params is None else msgspec.json.decode(job.params)
        return CommandFacts(os.fsdecode(job.command).split(), self.cwd, folder, params)

    def words_and_env(self, entry: QueueEntry) -> tuple[list[str] | None, Mapping[str, str]]:
        """Return the words of a job, None if only a shell knows them, and its whole environment."""
        job = job_of(entry)
        return self._literal_words(job), {**self.env, **decode_texts(job.env)}

    def prepare(self, attempt: Attempt, entry: QueueEntry) -> LaunchSpec:
        """Make the folder of a job and return how to start its next attempt."""
        job = job_of(entry)
        env = decode_texts(job.env)
        if job.request.share is not None:
            share_gpu(env, self.env)
        argv = self._find_argv(job, attempt, env)
        log = None if job.log is None else start_log(os.fsdecode(job.log), attempt)
        if job.folder is not None:
            folder = os.fsdecode(job.folder)
            env.update(run_variables(folder, {**self.env, **env}))
            make_run_folder(folder, job.params, {})
            log = log or os.path.join(folder, LOG)
            self._record.jobs.note_log(attempt.job, log)
        trace = None if job.trace is None else os.fsdecode(job.trace)
        spec = LaunchSpec(argv, log, env=env, trace=trace)
        if job.warm is None:
            return spec

        words = argv if job.argv is not None else self._literal_words(job)
        return spec.start_warm(words, [AUTO], cwd=self.cwd, home=find_home(), name=job.warm)

    def _literal_words(self, job: messages.Submit) -> list[str] | None:
        if job.argv is None:
            return self._command_line.literal_words(job.command)
        return [os.fsdecode(word) for word in job.argv]

    def _find_argv(
        self, job: messages.Submit, attempt: Attempt, env: Mapping[str, str]
    ) -> list[str]:
        def script_path() -> str:
            return self._record.path("scripts", f"{attempt.key}.sh")

        if job.request.options.image is not None:
            return self._container_words(job, {**self.env, **env}, script_path)
        if job.argv is None:
            return self._command_line.words_or_script(job.command, script_path)
        program, *rest = map(os.fsdecode, job.argv)
        return [find_program(program, env.get("PATH") or self._path) or program, *rest]

    def _container_words(
        self, job: messages.Submit, env: Mapping[str, str], script_path: Callable[[], str]
    ) -> list[str]:
        image, mounts = job.request.options.image, list[str]()
        assert image is not None
        if job.argv is None:
            words, mounts = line_words(os.fsdecode(job.command), self.shell, script_path)
        else:
            words = [os.fsdecode(word) for word in job.argv]
        settings = ContainerSettings.from_environment(env)
        return container_words(image, words, env, settings, gpus=job.request.slots, mounts=mounts)


def job_of(entry: QueueEntry) -> messages.Submit:
    """Return the submitted job of a queue entry."""
    assert isinstance(entry, TaskEntry)
    assert entry.job is not None
    return entry.job
