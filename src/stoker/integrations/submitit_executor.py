"""submitit's executor for Stoker: `submitit.AutoExecutor(folder, cluster="stoker")`.

submitit loads this module whenever it is used where Stoker is installed, so it imports little of Stoker.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from submitit.core import core, job_environment, logger, utils

from stoker.integrations.submitit_job import take_pickle

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from stoker.wire import NewJob

_STATES = {
    "starting": "RUNNING",
    "running": "RUNNING",
    "paused": "RUNNING",
    "suspended": "RUNNING",
    "done": "COMPLETED",
    "failed": "FAILED",
    "killed": "CANCELLED",
    "lost": "NODE_FAIL",
    "skipped": "CANCELLED",
    "pruned": "CANCELLED",
}
"""submitit knows the states of Slurm; all others of Stoker's are PENDING."""
_QUEUE_OPTIONS = (
    *("gpu_mem", "share", "retries", "backoff", "priority", "project", "node", "gpu_model"),
    *("on_nan", "stall", "idle", "preemptible", "preempt"),
)
# Options of `stoker add` that messages of the queue name, as parameters of submitit.
_OPTION_NAMES = {
    "-g": "gpus_per_node",
    "--gpu-mem": "stoker_gpu_mem",
    "--cpus": "cpus_per_task",
    "--mem": "mem_gb",
    "--node": "stoker_node",
    "--on": "stoker_gpu_model",
}
_SHARED_NAMES = {
    "gpus": "gpus_per_node",
    "cpus": "cpus_per_task",
    "mem": "mem_gb",
    "timeout": "timeout_min",
    "grace": "stoker_signal_delay_s",
}
_NO_LIMIT_MIN = 10 * 365 * 24 * 60
_DEFAULT_GRACE_S = 90


class StokerInfoWatcher(core.InfoWatcher):  # type: ignore[misc]  # submitit need not be installed
    """Asks the daemon for the states of all jobs at once."""

    def update(self) -> None:
        """Ask for the states of jobs that have not ended."""
        import time

        from stoker.client.client import Client
        from stoker.errors import StokerError
        from stoker.integrations.queued_calls import find_jobs

        self._num_calls += 1
        pending = {int(each) for each in self._registered - self._finished}
        try:
            with Client() as client:
                found = find_jobs(client, pending)
        except StokerError as error:
            logger.get_logger().warning(f"stoker: {error}")
        else:
            for number in pending:
                job = found.get(number)
                state = "CANCELLED" if job is None else _STATES.get(job.state.value, "PENDING")
                self._info_dict[str(number)] = {"JobID": str(number), "State": state}
        self._last_status_check = time.time()
        self._finished |= {each for each in self._registered if self.is_done(each, mode="cache")}

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Return the state of a job in Slurm's words."""
        return str(self.get_info(job_id, mode=mode).get("State", "UNKNOWN"))


class StokerJob(core.Job):  # type: ignore[misc]
    """A job of the queue. Its two outputs are in one file, in the order in which they were written."""

    _results_timeout_s = 1  # the result is there before the job is over
    watcher = StokerInfoWatcher(delay_s=1)

    def wait(self) -> None:
        """Wait until the job is over."""
        from stoker.client.client import Client
        from stoker.integrations.queued_calls import wait_for_jobs

        if not self.done():
            with Client() as client:
                wait_for_jobs(client, [int(self.job_id)])
            self.watcher.get_state(self.job_id, mode="force")

    def cancel(self, check: bool = True) -> None:
        """End the job."""
        from stoker.client.client import Client
        from stoker.errors import StokerError
        from stoker.wire import Kill

        with (
            contextlib.nullcontext() if check else contextlib.suppress(StokerError),
            Client() as client,
        ):
            client.kill(Kill(ids=self.job_id))

    def stderr(self) -> str | None:
        """Return the job's output: errors are part of it."""
        return self.stdout()  # type: ignore[no-any-return]

    def _interrupt(self, timeout: bool = False) -> None:
        """Preempt the job, as submitit's tests do."""
        del timeout
        _preempt(self.job_id)


class StokerSignalHandler(job_environment.SignalHandler):  # type: ignore[misc]
    """Handles the stop signal, which Stoker sends to preempt a job and to kill it."""

    def checkpoint_and_try_requeue(self, signum: int, frame: FrameType | None = None) -> None:
        """End at once if the job was killed: it does not go on, so a checkpoint is of no use."""
        if _is_killed(self.env.job_id):
            name = signal.Signals(signum).name
            self._logger.warning(f"Caught signal {name}: this job was killed by request.")
            sys.exit(-1)
        super().checkpoint_and_try_requeue(signum, frame)


class StokerJobEnvironment(job_environment.JobEnvironment):  # type: ignore[misc]
    """What a job knows of itself."""

    # A job is one task: none of the others is ever set.
    _env: ClassVar[dict[str, str]] = {
        "job_id": "STOKER_JOB_ID",
        "num_tasks": "SUBMITIT_STOKER_NTASKS",
        "num_nodes": "SUBMITIT_STOKER_JOB_NUM_NODES",
        "node": "SUBMITIT_STOKER_NODEID",
        "global_rank": "SUBMITIT_STOKER_GLOBALID",
        "local_rank": "SUBMITIT_STOKER_LOCALID",
    }

    def _handle_signals(self, paths: utils.JobPaths, submission: utils.DelayedSubmission) -> None:
        super()._handle_signals(paths, submission)
        handler = StokerSignalHandler(self, paths, submission)
        signal.signal(self._usr_sig(), handler.checkpoint_and_try_requeue)

    def _requeue(self, countdown: int) -> None:
        """Let the job wait again. One that Stoker has preempted does so anyway."""
        from stoker.errors import StokerError

        signal.signal(self._usr_sig(), signal.SIG_IGN)  # preempting sends it
        try:
            _preempt(self.job_id)
        except StokerError as error:  # it is being ended, or its machine is cut off from the queue
            logger.get_logger().info(f"Job {self.job_id} does not wait again by itself: {error}")
        else:
            logger.get_logger().info(f"Requeued job {self.job_id} ({countdown} remaining timeouts)")


def _is_killed(job_id: str) -> bool:
    """Whether the queue is ending this job by request; also False if no daemon answers."""
    from stoker.client.client import Client
    from stoker.core.job import Ending
    from stoker.errors import StokerError

    try:
        with Client() as client:
            return client.show(int(job_id)).ending is Ending.KILL
    except StokerError:
        return False


def _preempt(job_id: str) -> None:
    from stoker.client.client import Client
    from stoker.wire import Preempt

    with Client() as client:
        client.preempt(Preempt(ids=job_id))


class StokerExecutor(core.Executor):  # type: ignore[misc]
    """Submits calls to Stoker's queue; the daemon is started if none runs.

    The shared parameters of submitit mean what they mean there; without `gpus_per_node` a job has one GPU.
    Those that begin with `stoker_` are options of `stoker add`: `stoker_gpu_mem="10G"`.
    """

    job_class = StokerJob

    def __init__(
        self,
        folder: str | Path,
        max_num_timeout: int = 3,
        max_pickle_size_gb: float = 1.0,
        python: str | None = None,
    ) -> None:
        super().__init__(folder)
        self.max_num_timeout = max_num_timeout
        self.max_pickle_size_gb = max_pickle_size_gb
        self.python = shlex.quote(sys.executable) if python is None else python

    @classmethod
    def affinity(cls) -> int:
        """Be available, but let Slurm and the local executor go first if none is named."""
        return 1

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return {*_QUEUE_OPTIONS, "signal_delay_s"}

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        from stoker.client.client import Client
        from stoker.integrations.queue_options import make_submission, spelled_as

        options = self._options(delayed_submissions)
        pickles = self._write_pickles(delayed_submissions)
        calls = zip(pickles, delayed_submissions, strict=True)
        new = [self._new_job(pickle, _name_of(call.function)) for pickle, call in calls]
        submission = make_submission(new, options, _spell, {"SUBMITIT_EXECUTOR": self.name()})
        with Client(start=True) as client, spelled_as(_OPTION_NAMES):
            added = client.add(submission)
        ids = [number for part in added for number in range(part.first, part.last + 1)]
        jobs = [self.job_class(self.folder, str(number)) for number in ids]
        for job, pickle in zip(jobs, pickles, strict=True):
            take_pickle(pickle, job.paths)
        return jobs

    def _options(self, calls: Sequence[utils.DelayedSubmission]) -> dict[str, Any]:
        """Return the fields of the submission."""
        from stoker.integrations.queue_options import make_name, read_queue_options

        given = self.parameters
        _refuse_tasks(given)
        own = {name: given[name] for name in _QUEUE_OPTIONS if name in given}
        timeout_min, mem_gb = given.get("timeout_min"), given.get("mem_gb")
        texts = {**own, "gpus": given.get("gpus_per_node", 1), "timeout": None}
        log = utils.JobPaths(self.folder, job_id="{id}", task_id=0).stdout
        return {
            **read_queue_options(texts, _spell),
            "name": make_name([str(given.get("name", _name_of(calls[0].function)))]),
            "log": str(log),
            "timeout_s": None if timeout_min is None else timeout_min * 60.0,
            "mem_bytes": None if mem_gb is None else int(mem_gb * 2**30),
            "cpus": given.get("cpus_per_task"),
            "stop_signal": int(StokerJobEnvironment._usr_sig()),
            "signal_main": True,
            "grace_s": float(given.get("signal_delay_s", _DEFAULT_GRACE_S)),
            "requeue": all(hasattr(each.function, "checkpoint") for each in calls),
        }

    def _write_pickles(self, calls: Sequence[utils.DelayedSubmission]) -> list[str]:
        from stoker.errors import UsageError

        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        pickles: list[str] = []
        for call in calls:
            path = folder / f"{uuid.uuid4().hex}.pkl"
            call.set_timeout(
                self.parameters.get("timeout_min", _NO_LIMIT_MIN), self.max_num_timeout
            )
            try:
                call.dump(path)
            except Exception as error:
                raise UsageError(
                    f"{_name_of(call.function)} or its arguments cannot be sent to another process:"
                    f" {type(error).__name__}: {error}"
                ) from error
            size_gb = path.stat().st_size / 2**30
            if not pickles and size_gb * len(calls) > self.max_pickle_size_gb:
                path.unlink()
                raise UsageError(
                    f"{len(calls)} calls of {size_gb:.2f} GB are more than max_pickle_size_gb="
                    f"{self.max_pickle_size_gb:g}: pass file names instead of data, or set it higher"
                )
            pickles.append(str(path))
        return pickles

    def _new_job(self, pickle: str, name: str) -> NewJob:
        from stoker.wire import NewJob, to_wire

        module = ("-u", "-m", "stoker.integrations.submitit_job")
        words = [*shlex.split(self.python), *module, str(self.folder), pickle, name]
        return NewJob(command=[to_wire(os.fsencode(word)) for word in words])


def _refuse_tasks(given: Mapping[str, Any]) -> None:
    from stoker.errors import UsageError

    for name in ("nodes", "tasks_per_node"):
        if given.get(name, 1) != 1:
            raise UsageError(
                f"{name}={given[name]}: a job of Stoker is one task on one machine; it can start the"
                " processes for its GPUs itself ($MASTER_PORT is set)"
            )


def _spell(name: str) -> str:
    """Return how an option is written as a parameter of submitit."""
    return _SHARED_NAMES.get(name, f"stoker_{name}")


def _name_of(function: Any) -> str:
    from stoker.task.call_files import name_of

    return name_of(function).rpartition(".")[2]
