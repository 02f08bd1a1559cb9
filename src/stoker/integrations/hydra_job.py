"""The process of one Hydra job: runs the job as Hydra's own launcher does."""

from __future__ import annotations

from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from stoker.reporting import report
from stoker.task.worker import FailedCallError


def run_sweep_job(
    singletons: Any, context: HydraContext, task_function: TaskFunction, config: DictConfig
) -> JobReturn:
    """Run a job of a sweep, and return what Hydra makes of it.

    `singletons` is Hydra's state in the process that launched the sweep. A returned number is reported as
    the metric `value`. An exception of the job makes its process fail; the launcher gets the JobReturn too.
    """
    Singleton.set_state(singletons)
    setup_globals()
    job = run_job(
        hydra_context=context,
        task_function=task_function,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )
    if job.status is JobStatus.FAILED:
        raise FailedCallError(job) from job._return_value
    value = job.return_value
    if isinstance(value, int | float) and not isinstance(value, bool):
        report(value=value)
    return job
