"""`stoker.run`: commands from Python, each on a free GPU."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from stoker.core.sharing.rules import NEVER
from stoker.errors import StokerError, UsageError
from stoker.task import messages
from stoker.task.engine_session import EngineSession, Gpus
from stoker.task.job import Job
from stoker.task.share_options import read_gpu_mem, read_share

_SHOWN = 5


class JobsFailedError(StokerError):
    """Not all jobs have succeeded; `jobs` are all of them, `failed` those that have not."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = list(jobs)
        self.failed = [job for job in jobs if not job.ok]
        shown = "; ".join(_tell(job) for job in self.failed[:_SHOWN])
        more = f"; and {len(self.failed) - _SHOWN} more" if len(self.failed) > _SHOWN else ""
        super().__init__(f"{len(self.failed)} of {len(self.jobs)} failed: {shown}{more}")


def _tell(job: Job) -> str:
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
) -> list[Job]:
    """Run commands, each on a free GPU, the next the moment one ends; return when all have ended.

    A command is a shell line, or a list of words for which no shell is asked. `gpus` is as for
    `stoker run --gpus`, by default every GPU that nobody else is using; with `gpus_per_job=0` none is
    needed, and `max_workers` run at once. `env` is added to this process's environment. With `logs`
    the output of command N goes to `N.log` in that folder, else where this process's goes. `resume`
    is a name: under it is kept what has succeeded, and the same again runs only the rest. `share` and
    `gpu_mem` are as for `stoker run`.

    Raises JobsFailedError when all have ended and not all succeeded, unless `check` is false.
    """
    sharing = read_share(share) if gpus_per_job == 1 else None
    session = EngineSession(
        gpus="" if gpus_per_job == 0 else gpus,
        jobs_per_gpu=jobs_per_gpu,
        cpu_places=places(max_workers, gpus_per_job),
        env=None if env is None else {**os.environ, **env},
        cwd=cwd,
        shell=shell,
        record=None if resume is None else {"cwd": os.path.abspath(cwd or "."), "name": resume},
        resume=resume is not None,
        max_failures=1 if fail_fast else None,
        gpu_mem=read_gpu_mem(gpu_mem),
    )
    if logs is not None:
        os.makedirs(logs, exist_ok=True)
    jobs: list[Job] = []

    def submit_all() -> None:
        for command in commands:
            line = command if isinstance(command, str) else shlex.join(command)
            number = session.take_number()
            jobs.append(
                session.submit(
                    line,
                    number=number,
                    argv=None if isinstance(command, str) else command,
                    log=None if logs is None else os.path.join(logs, f"{number}.log"),
                    slots=gpus_per_job,
                    timeout_s=timeout_s,
                    retries=retries,
                    share=sharing,
                )
            )

    see_through(session, submit_all)
    if check and not all(job.ok for job in jobs):
        raise JobsFailedError(jobs)
    return jobs


def places(max_workers: int | None, gpus_per_job: int) -> int:
    """How many jobs that need no GPU run at once; UsageError if that is asked of others."""
    if max_workers is not None and gpus_per_job:
        raise UsageError("max_workers is for work without GPU: pass gpus_per_job=0 with it")
    if max_workers is not None and max_workers < 1:
        raise UsageError(f"max_workers={max_workers}: at least 1 is needed")
    return (max_workers or os.cpu_count() or 1) if gpus_per_job == 0 else 0


def see_through(
    session: EngineSession,
    submit_all: Callable[[], None],
    heed: Callable[[messages.Event, Job], None] = lambda _event, _job: None,
) -> None:
    """Submit all jobs of a session and hear it to its end; what interrupts that ends all jobs at once."""
    try:
        submit_all()
        session.close()
        for event, job in session.events():
            if isinstance(event, messages.Notice):
                sys.stderr.write(f"stoker: {event.text}\n")
            elif job is not None:
                heed(event, job)
    finally:
        session.abandon()
