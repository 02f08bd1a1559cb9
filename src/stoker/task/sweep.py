"""`stoker.sweep`: a function, a Task or a command, with all combinations of its parameters."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stoker.core.sharing.rules import AUTO
from stoker.errors import UsageError
from stoker.home import find_home
from stoker.sweep_results.collect import LINES, SUMMARY, note_sweep, read_run
from stoker.sweep_results.results import Results
from stoker.sweeps.definition import Metric
from stoker.sweeps.earlier_runs import record_key
from stoker.sweeps.plan import Run, plan_sweep
from stoker.task import messages
from stoker.task.base import Task, nest, run_function, run_task
from stoker.task.call_files import call_argv, name_of, remove_call, write_call
from stoker.task.engine_session import EngineSession, Gpus
from stoker.task.fingerprint import take_fingerprint
from stoker.task.job import Job
from stoker.task.run import JobsFailedError, places, see_through
from stoker.task.share_options import read_gpu_mem, read_share

Space = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Parameters as in a sweep file: a mapping, or a list of mappings, which is their union."""

_PICKLED = "python:"
_CODE = b" # code "
_CODE_FILE = ".code"


class SweepFailedError(JobsFailedError):
    """Not all runs have succeeded; `results` are those of all of them."""

    def __init__(self, jobs: Sequence[Job], results: Results) -> None:
        super().__init__(jobs)
        self.results = results


def sweep(
    work: str | Callable[..., Any] | type[Task],
    space: Space,
    *,
    name: str | None = None,
    method: str | None = None,
    samples: int | None = None,
    seed: int | None = None,
    repeats: int | None = None,
    fixed: Mapping[str, Any] | None = None,
    exclude: Sequence[str | Mapping[str, Any]] | None = None,
    metric: str | Mapping[str, Any] | None = None,
    dir: str | None = None,  # noqa: A002 - what a sweep file calls it
    gpus: Gpus | None = None,
    gpus_per_job: int = 1,
    jobs_per_gpu: int = 1,
    max_workers: int | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    retries: int = 0,
    rerun: str = "undone",
    max_failures: int | None = None,
    check: bool = True,
    warm: bool = True,
    share: str = AUTO.text,
    gpu_mem: str | None = None,
) -> Results:
    """Run all combinations, or samples of them, here and now; return the results of all runs.

    `work` is a command's template, a function (called with the parameters as keyword arguments, in
    a fresh process of its own) or a Task. `space` and what follows is as in a sweep file; `gpus` and
    what follows as for `stoker.run`. Each run has a folder of its own. The same sweep again runs only
    what has not succeeded with the same code, unless `rerun` is "all"; a line on standard error tells
    how many runs that spares. After `max_failures` no more runs are begun. Calls
    find imported what the first one has imported, unless `warm` is false. Runs share GPUs once the
    first have shown what they need, unless `share` is "never"; `gpu_mem="10G"` tells it beforehand.

    Raises SweepFailedError when all have ended and not all succeeded, unless `check` is false.
    """
    if rerun not in ("undone", "all"):
        raise UsageError(f"rerun={rerun!r}: 'undone' or 'all'")
    given = {
        "name": name or (None if isinstance(work, str) else name_of(work).rpartition(".")[2]),
        "command": work if isinstance(work, str) else _template(work),
        "method": method,
        "samples": samples,
        "seed": seed,
        "repeats": repeats,
        "fixed": fixed,
        "exclude": exclude,
        "metric": {"name": metric} if isinstance(metric, str) else metric,
        "dir": dir,
        "parameters": space,
    }
    sharing = read_share(share) if gpus_per_job == 1 else None
    plan = plan_sweep({key: value for key, value in given.items() if value is not None})
    note_sweep(plan)
    record = record_key(os.getcwd(), plan.name)
    done = _read_done(record) if rerun != "all" else set()
    session = EngineSession(
        gpus="" if gpus_per_job == 0 else gpus,
        jobs_per_gpu=jobs_per_gpu,
        cpu_places=places(max_workers, gpus_per_job),
        env=None if env is None else {**os.environ, **env},
        record=record,
        resume=rerun != "all",
        max_failures=max_failures,
        in_advance=isinstance(work, str),
        gpu_mem=read_gpu_mem(gpu_mem),
    )
    runs = _Runs(session, work, plan.metric, warm=warm, share=sharing)

    def submit_all() -> None:
        for each in plan:
            runs.submit(each, slots=gpus_per_job, timeout_s=timeout_s, retries=retries)
        runs.tell_reuse(plan.name, done)

    see_through(session, submit_all, runs.heed)
    found = runs.results()
    if check and not all(job.ok for job in runs.jobs):
        raise SweepFailedError(runs.jobs, found)
    return found


class _Runs:
    """The runs of one sweep: what they do is written down when they have their GPU."""

    def __init__(
        self,
        session: EngineSession,
        work: str | Callable[..., Any] | type[Task],
        metric: Metric | None,
        *,
        warm: bool,
        share: str | None,
    ) -> None:
        self._share = share
        self._code = None if isinstance(work, str) else take_fingerprint(work)
        # Commands are started as they are: what is forked is a call.
        self._warm = None if isinstance(work, str) or not warm else name_of(work)
        self._session = session
        self._work = work
        self._metric = metric
        self._calls = os.path.join(session.folder, "calls")
        os.makedirs(self._calls, mode=0o700, exist_ok=True)
        self.jobs: list[Job] = []
        self._runs: dict[int, Run] = {}

    def submit(self, run: Run, *, slots: int, timeout_s: float | None, retries: int) -> None:
        """Let a run wait for its GPU."""
        number = self._session.take_number()
        is_call = not isinstance(self._work, str)
        self._runs[number] = run
        self.jobs.append(
            self._session.submit(
                self._command(run),
                number=number,
                argv=call_argv(self._path(number)) if is_call else None,
                folder=run.dir,
                params=run.params_json,
                slots=slots,
                timeout_s=timeout_s,
                retries=retries,
                ask=is_call,
                warm=self._warm,
                share=self._share,
            )
        )

    def tell_reuse(self, name: str, done: set[bytes]) -> None:
        """Say how many runs are not repeated, and how many are because their code has changed."""
        known = {command.partition(_CODE)[0] for command in done}
        reused = changed = 0
        for job in self.jobs:
            command = job.command.encode()
            if command in done:
                reused += 1
            elif command.partition(_CODE)[0] in known:
                changed += 1
        if reused:
            again = "rerun='all' repeats them"
            _tell(f"sweep {name}: {reused} of {len(self.jobs)} runs are already done ({again})")
        if changed:
            _tell(
                f"sweep {name}: {changed} of {len(self.jobs)} runs were done with other code:"
                " they run again"
            )

    def heed(self, event: messages.Event, job: Job) -> None:
        """Write down what a run does when it has its GPU, and forget it when it has ended."""
        if isinstance(event, messages.Asked):
            try:
                self._session.answer(job, self._prepare(job))
            except Exception as error:
                self._session.refuse(job, f"{type(error).__name__}: {error}")
        elif isinstance(event, messages.Ended) and not event.retried:
            remove_call(self._path(job.number))

    def results(self) -> Results:
        """What all runs came to, as far as they were begun."""
        metric = self._metric
        name, regex = (metric.name, metric.regex) if metric else (None, None)
        pattern = None if regex is None else re.compile(regex.encode())
        records = []
        for job in self.jobs:
            record = read_run(self._runs[job.number].dir, name, pattern)
            record.params = record.params or self._runs[job.number].params
            record.facts = {"state": job.state, "gpu": ",".join(job.gpus), "attempts": job.attempt}
            if job.seconds is not None:
                record.facts["seconds"] = round(job.seconds, 3)
            records.append(record)
        return Results(records, metric.goal if metric else None)

    def _prepare(self, job: Job) -> Mapping[str, str]:
        run = self._runs[job.number]
        params = nest(run.params)
        path = self._path(job.number)
        os.makedirs(run.dir, exist_ok=True)
        self._note_code(run.dir)
        if isinstance(self._work, type) and issubclass(self._work, Task):
            task = self._work(params, run.dir)
            env = task.required_env()
            write_call(path, run_task, (task,), is_loud=True)
            return env
        assert callable(self._work)
        write_call(path, run_function, (self._work, params), is_loud=True)
        return {}

    def _command(self, run: Run) -> str:
        """What the record knows a run by: for calls with the fingerprint of their code."""
        return run.command if self._code is None else f"{run.command}{_CODE.decode()}{self._code}"

    def _note_code(self, folder: str) -> None:
        """Remove the metrics of other code from a run's folder, and note whose come there now."""
        assert self._code is not None
        path = os.path.join(folder, _CODE_FILE)
        try:
            with open(path, encoding="ascii") as file:
                if file.read().strip() == self._code:
                    return
        except FileNotFoundError:
            pass
        else:
            for name in (LINES, SUMMARY):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, name))
        with open(path, "w", encoding="ascii") as file:
            file.write(f"{self._code}\n")

    def _path(self, number: int) -> str:
        return os.path.join(self._calls, str(number))


def _template(work: Callable[..., Any] | type[Task]) -> str:
    """What stands for a call where commands have their template: its name, and all parameters."""
    if not callable(work):
        raise UsageError(f"a sweep is over a command, a function or a Task, not over {work!r}")
    name = name_of(work).replace("{", "{{").replace("}", "}}")
    return f"{_PICKLED}{name} {{params_json}}"


def _read_done(record: Mapping[str, str]) -> set[bytes]:
    """The commands of this sweep that have succeeded before."""
    from stoker.store.foreground_runs import read_done

    return read_done(find_home(), record)


def _tell(text: str) -> None:
    sys.stderr.write(f"stoker: {text}\n")
