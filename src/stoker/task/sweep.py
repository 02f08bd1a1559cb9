"""`stoker.sweep`: runs a function, a Task or a command with all combinations of its parameters."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from stoker.core.job import Request
from stoker.core.sharing.rules import AUTO
from stoker.errors import UsageError
from stoker.home import find_home
from stoker.sweep_results.collect import LINES, SUMMARY, read_run, write_manifest
from stoker.sweep_results.results import Results
from stoker.sweeps.earlier_runs import record_key
from stoker.sweeps.plan import Run, Sweep, plan_sweep
from stoker.task import messages
from stoker.task.base import Task, nest, run_function, run_task
from stoker.task.call_files import call_argv, name_of, remove_call, write_call
from stoker.task.engine_session import EngineSession
from stoker.task.fingerprint import take_fingerprint
from stoker.task.job import Job
from stoker.task.options import GpuOptions, Gpus, encode_texts
from stoker.task.run import JobsFailedError, run_to_end

Space = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Parameters as in a sweep file: a mapping, or a list of mappings, which is their union."""

_Work = str | Callable[..., Any] | type[Task]

_PICKLED = "python:"
_CODE = b" # code "
_CODE_FILE = ".code"


class SweepFailedError(JobsFailedError):
    """Not all runs succeeded. `results` has the results of all runs."""

    def __init__(self, jobs: Sequence[Job], results: Results) -> None:
        super().__init__(jobs)
        self.results = results


def sweep(
    work: _Work,
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
    image: str | None = None,
) -> Results:
    """Run all combinations of the parameters, or samples of them; return the results of all runs.

    `work` is a command template, a function (called with the parameters as keyword arguments, in a
    fresh process) or a Task. `space` and the arguments up to `dir` are as in a sweep file; `gpus` and
    most others as for `stoker.run`. Each run has its own folder. Runs that succeeded before with the
    same code are skipped, unless `rerun` is "all"; a line on standard error says how many. After
    `max_failures` no more runs start. Calls find the modules imported that the first one imported, unless
    `warm` is false. Runs share GPUs once the first have shown what they need, unless `share` is "never";
    `gpu_mem="10G"` declares it beforehand. With `image` the runs of a command template are containers.
    Raises SweepFailedError if a run did not succeed, unless `check` is false.
    """
    _check(work, rerun, image)
    options = GpuOptions(gpus, gpus_per_job, jobs_per_gpu, max_workers)
    request = options.make_request(
        timeout_s=timeout_s, retries=retries, share=share, gpu_mem=gpu_mem, image=image
    )
    search = {"method": method, "samples": samples, "seed": seed, "repeats": repeats}
    choice = {"parameters": space, "fixed": fixed, "exclude": exclude}
    plan = _plan(work, {"name": name or None, "metric": metric, "dir": dir, **search, **choice})
    opening = options.make_open(request.gpu_mem, env)
    opening = msgspec.structs.replace(opening, resume=rerun != "all", max_failures=max_failures)
    return _Runs(work, plan, request, opening, warm=warm).run_all(check=check)


def _check(work: _Work, rerun: str, image: str | None) -> None:
    if image is not None and not isinstance(work, str):
        raise UsageError(
            "image is for command templates: calls run in this Python, not in an image"
        )
    if rerun not in ("undone", "all"):
        raise UsageError(f"rerun={rerun!r}: 'undone' or 'all'")


def _plan(work: _Work, given: Mapping[str, Any]) -> Sweep:
    """Check the arguments of a sweep, and record the sweep in its folder."""
    definition = {key: value for key, value in given.items() if value is not None}
    if isinstance(definition.get("metric"), str):
        definition["metric"] = {"name": definition["metric"]}
    if isinstance(work, str):
        plan = plan_sweep({"command": work, **definition})
    elif callable(work):
        name = name_of(work)
        escaped = name.replace("{", "{{").replace("}", "}}")
        command = f"{_PICKLED}{escaped} {{params_json}}"
        plan = plan_sweep({"name": name.rpartition(".")[2], "command": command, **definition})
    else:
        raise UsageError(f"a sweep is over a command, a function or a Task, not over {work!r}")
    write_manifest(plan)
    return plan


class _Runs:
    """The runs of one sweep. The call of a run is written when the run has its GPU."""

    def __init__(
        self, work: _Work, plan: Sweep, request: Request, opening: messages.Open, *, warm: bool
    ) -> None:
        record = record_key(os.getcwd(), plan.name)
        self._work = work
        self._plan = plan
        self._request = request
        self._code = None if isinstance(work, str) else take_fingerprint(work)
        # Only calls start from a warm worker.
        self._warm = None if isinstance(work, str) or not warm else name_of(work)
        self._done = _read_done(record) if opening.resume else set()
        in_advance = isinstance(work, str)
        opening = msgspec.structs.replace(
            opening, record=encode_texts(record), in_advance=in_advance
        )
        self._session = EngineSession(opening)
        self._calls = os.path.join(self._session.folder, "calls")
        os.makedirs(self._calls, mode=0o700, exist_ok=True)
        self._jobs: list[Job] = []
        self._runs: dict[int, Run] = {}

    def run_all(self, *, check: bool) -> Results:
        """Run everything and return the results; with `check`, SweepFailedError if a run failed."""
        run_to_end(self._session, self._submit_all, self._on_event)
        results = self._read_results()
        if check and not all(job.ok for job in self._jobs):
            raise SweepFailedError(self._jobs, results)
        return results

    def _submit_all(self) -> None:
        for run in self._plan:
            self._submit(run)
        self._print_reuse()

    def _submit(self, run: Run) -> None:
        number = self._session.take_number()
        is_call = not isinstance(self._work, str)
        self._runs[number] = run
        self._jobs.append(
            self._session.submit(
                self._command(run),
                self._request,
                number=number,
                argv=call_argv(self._path(number)) if is_call else None,
                folder=run.dir,
                params=run.params_json,
                ask=is_call,
                warm=self._warm,
            )
        )

    def _print_reuse(self) -> None:
        """Print how many runs are skipped, and how many run again because their code changed."""
        known = {command.partition(_CODE)[0] for command in self._done}
        reused = changed = 0
        for job in self._jobs:
            command = job.command.encode()
            if command in self._done:
                reused += 1
            elif command.partition(_CODE)[0] in known:
                changed += 1
        if reused:
            folder = os.path.relpath(self._plan.root)
            self._print(reused, f"are reused from {folder} (rerun='all' repeats them)")
        if changed:
            self._print(changed, "were done with other code: they run again")

    def _print(self, count: int, text: str) -> None:
        sys.stderr.write(
            f"stoker: sweep {self._plan.name}: {count} of {len(self._jobs)} runs {text}\n"
        )

    def _on_event(self, event: messages.Event, job: Job) -> None:
        """Write a run's call when the run has its GPU, and remove it when the run has ended."""
        if isinstance(event, messages.Asked):
            try:
                self._session.answer(job, self._prepare(job))
            except Exception as error:
                self._session.refuse(job, f"{type(error).__name__}: {error}")
        elif isinstance(event, messages.Ended) and not event.retried:
            remove_call(self._path(job.number))

    def _read_results(self) -> Results:
        metric = self._plan.metric
        name, regex = (metric.name, metric.regex) if metric else (None, None)
        pattern = None if regex is None else re.compile(regex.encode())
        records = []
        for job in self._jobs:
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
        """Return the run's key in the record; a call's includes the fingerprint of its code."""
        return run.command if self._code is None else f"{run.command}{_CODE.decode()}{self._code}"

    def _note_code(self, folder: str) -> None:
        """Remove metrics of other code from a run's folder, and record the present code there."""
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


def _read_done(record: Mapping[str, str]) -> set[bytes]:
    """Return the commands of this sweep that have succeeded before."""
    from stoker.store.foreground_runs import read_done  # late: the database takes long to import

    return read_done(find_home(), record)
