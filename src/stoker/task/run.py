"""`stoker.run`: commands from Python, each on a free GPU."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from stoker.core.job import Request
from stoker.core.sharing.rules import NEVER
from stoker.errors import StokerError
from stoker.task import messages
from stoker.task.engine_session import EngineSession
from stoker.task.job import Job
from stoker.task.options import GpuOptions, Gpus, encode_texts

_MAX_SHOWN = 5


class JobsFailedError(StokerError):
    """Not all jobs succeeded. `jobs` are all jobs, `failed` those that did not succeed."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = list(jobs)
        self.failed = [job for job in jobs if not job.ok]
        shown = "; ".join(_describe(job) for job in self.failed[:_MAX_SHOWN])
        hidden = len(self.failed) - _MAX_SHOWN
        more = f"; and {hidden} more" if hidden > 0 else ""
        super().__init__(f"{len(self.failed)} of {len(self.jobs)} failed: {shown}{more}")


def _describe(job: Job) -> str:
    where = f" (log: {job.log})" if job.log else ""
    return f"{job.reason or job.state}: {job.command}{where}"


def run(
    commands: Iterable[str | Sequence[str]],
    *,
    gpus: Gpus | None = None,
    gpus_per_job: int = 1,
    jobs_per_gpu: int = 1,
    max_workers: int | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    shell: str | None = None,
    logs: str | None = None,
    timeout_s: float | None = None,
    retries: int = 0,
    fail_fast: bool = False,
    resume: str | None = None,
    check: bool = True,
    share: str = NEVER.text,
    gpu_mem: str | None = None,
    image: str | None = None,
) -> list[Job]:
    """Run commands, each on a free GPU, and return when all have ended.

    A command is a shell line, or a list of words that runs without a shell. `gpus` is as for `stoker
    run --gpus`; the default is every GPU that no other process uses. With `gpus_per_job=0` commands need
    no GPU, and `max_workers` of them run at once. `env` is added to this process's environment. With
    `logs` the output of command N goes to `N.log` in that folder (that of its second attempt to
    `N.2.log`), otherwise to this process's output. Files of an earlier run are replaced.
    `resume` is the name of a record: commands that succeeded under it before are skipped. `share` and
    `gpu_mem` are as for `stoker run`. With `image` the commands run in containers.

    Raises JobsFailedError if a command did not succeed, unless `check` is false.
    """
    options = GpuOptions(gpus, gpus_per_job, jobs_per_gpu, max_workers)
    request = options.make_request(
        timeout_s=timeout_s, retries=retries, share=share, gpu_mem=gpu_mem, image=image
    )
    opening = msgspec.structs.replace(
        options.make_open(request.gpu_mem, env, cwd),
        shell=shell,
        record=None if resume is None else _encode_record(cwd, resume),
        resume=resume is not None,
        max_failures=1 if fail_fast else None,
    )
    jobs = _run_commands(EngineSession(opening), commands, request, logs)
    if check and not all(job.ok for job in jobs):
        raise JobsFailedError(jobs)
    return jobs


def _encode_record(cwd: str | None, name: str) -> dict[bytes, bytes]:
    return encode_texts({"cwd": os.path.abspath(cwd or "."), "name": name})


def _run_commands(
    session: EngineSession,
    commands: Iterable[str | Sequence[str]],
    request: Request,
    logs: str | None,
) -> list[Job]:
    if logs is not None:
        os.makedirs(logs, exist_ok=True)
    jobs: list[Job] = []

    def submit_all() -> None:
        for command in commands:
            number = session.take_number()
            jobs.append(
                session.submit(
                    command if isinstance(command, str) else shlex.join(command),
                    request,
                    number=number,
                    argv=None if isinstance(command, str) else command,
                    log=None if logs is None else os.path.join(logs, f"{number}.log"),
                )
            )

    run_to_end(session, submit_all)
    return jobs


def run_to_end(
    session: EngineSession,
    submit_all: Callable[[], None],
    on_event: Callable[[messages.Event, Job], None] = lambda _event, _job: None,
) -> None:
    """Submit all jobs of a session and handle its events until it ends; an exception kills all jobs."""
    try:
        submit_all()
        session.close()
        for event, job in session.events():
            if isinstance(event, messages.Notice):
                sys.stderr.write(f"stoker: {event.text}\n")
            elif job is not None:
                on_event(event, job)
    finally:
        session.abandon()
