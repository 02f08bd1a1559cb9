"""The tools that change the queue: plan, submit and kill."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import secrets
from collections.abc import Iterator, Sequence

import msgspec

from stoker.client.client import Client
from stoker.core.durations import format_duration
from stoker.core.lifecycle import is_final
from stoker.core.selector import check_name
from stoker.errors import ConflictError, NotFoundError, UsageError
from stoker.mcp_server.limits import HOUR_S, Limits, Usage, check_room
from stoker.mcp_server.plain_text import plain_line
from stoker.mcp_server.queue_view import Answer, QueueView, select_jobs
from stoker.submit_context import build_submission, find_folder
from stoker.sweeps.earlier_runs import EarlierRuns, Rerun
from stoker.sweeps.plan import Sweep, plan_sweep
from stoker.sweeps.queueing import describe_runs, queue_runs, submission_lock
from stoker.wire import Added, GpuInfo, Kill, Submission

_MAX_PLANS = 100
_MAX_HOURS = 24 * 30
_SHOWN = 5


class Plan(msgspec.Struct, kw_only=True):
    """A checked order. The `submission` has the job, or the options of all runs of the `sweep`.

    `added` is what came of it; None before it is submitted.
    """

    submission: Submission
    sweep: Sweep | None
    jobs: int
    gpu_hours: float
    added: list[Added] | None = None


class Orders:
    """Plans, submits and ends jobs of one project. What was not planned before cannot be submitted."""

    def __init__(self, project: str, limits: Limits, view: QueueView) -> None:
        self._project = project
        self._limits = limits
        self._view = view
        self._plans: dict[str, Plan] = {}

    def plan(
        self, command: str, parameters: Sequence[str], gpus: int, hours: float, name: str
    ) -> Answer:
        """Check an order and tell what it would do. Nothing is queued."""
        if not command.strip():
            raise UsageError(
                "the command is empty: write it as for a shell, such as python train.py"
            )
        if not (math.isfinite(hours) and 0 < hours <= _MAX_HOURS):
            raise UsageError(f"hours {hours:g}: write the time limit of a job, such as 0.5 or 8")
        if name:
            check_name("the name", name)
        with Client(start=True) as client:
            _check_gpus(gpus, client.read_gpus())
            plan = self._make_plan(client, command, parameters, gpus, hours, name)
            used = self._view.usage(client)
            status = client.status()
        check_room(self._limits, used, jobs=plan.jobs, gpu_hours=plan.gpu_hours)
        key = secrets.token_hex(4)
        self._plans[key] = plan
        while len(self._plans) > _MAX_PLANS:
            del self._plans[next(iter(self._plans))]
        return {
            "plan": key,
            "jobs": plan.jobs,
            "gpus_per_job": gpus,
            "time_limit_per_job": format_duration(hours * HOUR_S),
            "gpu_hours_at_most": round(plan.gpu_hours, 3),
            "folder": os.getcwd(),
            "commands": self._examples(plan, command),
            "sweep": None if plan.sweep is None else plan.sweep.name,
            "notes": [] if plan.sweep is None else plan.sweep.notes,
            "queue_empty_in": None if status.eta_s is None else format_duration(status.eta_s),
            "next": f"nothing is queued yet: submit(plan='{key}') queues it",
        }

    def submit(self, plan: str) -> Answer:
        """Queue what a plan describes; the same plan is queued once."""
        found = self._plans.get(plan)
        if found is None:
            raise NotFoundError(
                f"no plan {plain_line(plan, 40)!r} in this session: call plan first"
            )
        with Client(start=True) as client, _turn(client.home):
            if found.added is None:
                used = self._view.usage(client)
                check_room(self._limits, used, jobs=found.jobs, gpu_hours=found.gpu_hours)
                found.added = _add(client, found)
        added = found.added
        ids = [job for part in added for job in range(part.first, part.last + 1)]
        if not ids:
            return {
                "added": 0,
                "next": "every run is done, waiting or running already: see results",
            }
        jobs = str(ids[0]) if len(ids) == 1 else f"{ids[0]}-{ids[-1]}"
        notices = sorted({part.notice for part in added if part.notice})
        return {
            "added": len(ids),
            "jobs": jobs,
            "sweep": None if found.sweep is None else found.sweep.name,
            "notice": "; ".join(notices) or None,
            "next": f"wait(jobs='{jobs}') waits for it; why tells what it waits for",
        }

    def kill(self, jobs: str) -> Answer:
        """End jobs of the project; no other jobs."""
        with Client(start=True) as client:
            found = select_jobs(client, jobs)
            for job in found:
                if job.project != self._project:
                    where = (
                        "without a project" if job.project is None else f"of project {job.project}"
                    )
                    raise ConflictError(
                        f"job {job.id} is {where}: you may end jobs of project {self._project} alone"
                    )
            ids = [job.id for job in found if not is_final(job.state)]
            if not ids:
                return {"killed": [], "next": "these jobs have ended already"}
            changed = client.kill(Kill(ids=",".join(map(str, ids))))
        return {"killed": changed.ids, "next": "wait tells when they have ended"}

    def _make_plan(
        self,
        client: Client,
        command: str,
        parameters: Sequence[str],
        gpus: int,
        hours: float,
        name: str,
    ) -> Plan:
        options = {"project": self._project, "gpus": gpus, "timeout_s": hours * HOUR_S}
        if not parameters:
            job = [{"command": command}]
            message = build_submission(job, find_folder(None), {**options, "name": name or None})
            try:
                submission = msgspec.convert(message, Submission)
            except msgspec.ValidationError as error:
                raise UsageError(str(error)) from None
            return Plan(submission=submission, sweep=None, jobs=1, gpu_hours=gpus * hours)
        definition = {"command": command, **({"name": name} if name else {})}
        sweep = plan_sweep(definition, parameters)
        if sweep.count > self._limits.jobs_per_hour:
            check_room(self._limits, Usage(0, 0.0), jobs=sweep.count, gpu_hours=0.0)
        common = describe_runs(sweep, find_folder(None), {"gpus": gpus})
        common = msgspec.structs.replace(
            common, project=self._project, timeout_s=options["timeout_s"]
        )
        earlier = EarlierRuns(client.sweep(sweep.name, os.getcwd()))
        count = sum(1 for _run in earlier.choose(sweep, Rerun.UNDONE))
        return Plan(submission=common, sweep=sweep, jobs=count, gpu_hours=count * gpus * hours)

    @staticmethod
    def _examples(plan: Plan, command: str) -> list[str]:
        if plan.sweep is None:
            return [command]
        runs = zip(range(_SHOWN), plan.sweep, strict=False)
        return [run.own_command for _number, run in runs]


def _add(client: Client, plan: Plan) -> list[Added]:
    if plan.sweep is None:
        return client.add(plan.submission)
    return _add_runs(client, plan.sweep, plan.submission)


def _add_runs(client: Client, sweep: Sweep, common: Submission) -> list[Added]:
    from stoker.sweep_results.collect import write_manifest

    write_manifest(sweep)
    with submission_lock(client.home, sweep.name, os.getcwd()):
        earlier = EarlierRuns(client.sweep(sweep.name, os.getcwd()))
        return list(queue_runs(client, earlier.choose(sweep, Rerun.UNDONE), common))


def _check_gpus(gpus: int, known: Sequence[GpuInfo]) -> None:
    there = sum(gpu.slot is not None for gpu in known)
    if gpus < 0:
        raise UsageError(f"gpus {gpus}: write 0 or more")
    if gpus > there:
        most = {0: "no GPU: gpus=0 is for a job without", 1: "1 GPU: ask for 1"}
        has = most.get(there, f"{there} GPUs: ask for {there} at most")
        wants = "a GPU" if gpus == 1 else f"{gpus:,} GPUs"
        raise UsageError(f"a job cannot have {wants}: this queue has {has}")


@contextlib.contextmanager
def _turn(home: str) -> Iterator[None]:
    """Let one session after the other check the limits and submit."""
    path = os.path.join(home, "mcp.lock")
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
