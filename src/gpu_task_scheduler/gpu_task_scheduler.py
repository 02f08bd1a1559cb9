"""`GPUTaskScheduler`: runs a task for each test instance, on Stoker's engine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpu_task_scheduler.child import read_env, run_named_task, run_task
from gpu_task_scheduler.config_manager import ConfigManager
from gpu_task_scheduler.logs import logging_to
from gpu_task_scheduler.records import Records
from gpu_task_scheduler.results import SKIPPED, Result, TaskResult, TasksFailedError

if TYPE_CHECKING:
    import logging

    from gpu_task_scheduler.config_manager import Instance
    from gpu_task_scheduler.gpu_task import GPUTask
    from stoker.task.engine_session import EngineSession
    from stoker.task.job import Job
    from stoker.task.messages import Event


class GPUTaskScheduler:
    """Runs the task class once for each instance of a configuration, on the configuration's GPUs.

    `gpu_task_class` may also be a string, `module.Class`: then this process does not import the
    module. With `warm`, tasks start with the modules imported that the first task imported.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        gpu_task_class: type[GPUTask] | Callable[..., GPUTask] | str,
        *,
        warm: bool = True,
    ) -> None:
        if isinstance(gpu_task_class, str) and "." not in gpu_task_class:
            raise ValueError(f"gpu_task_class {gpu_task_class!r}: write module.Class")
        self._config_manager = ConfigManager(config)
        self._config = self._config_manager.get_all_scheduler_config()
        self._gpu_task_class = gpu_task_class
        self._warm = warm

    def start(self, check: bool = False) -> Result:
        """Run all instances that have not finished yet, and wait for them.

        With `check` raises TasksFailedError if a task did not succeed.
        """
        records = Records(self._config["temp_folder"])
        gpus = [each["name"] for each in self._config_manager.get_gpu_envs()]
        with (
            contextlib.closing(records),
            logging_to(self._config["scheduler_log_file_path"]) as log,
        ):
            run = _Run(self._config, self._gpu_task_class, gpus, records, log, self._warm)
            todo = run.skip_done(list(self._config_manager.instances()))
            if todo:
                run.run_all(todo)
            for gpu in gpus:
                log.info("%s finished", gpu)
            result = Result(run.results)
            log.info("%s", result.summary)
        if check and not result.ok:
            raise TasksFailedError(result)
        return result


@dataclass
class _Run:
    """One run of a scheduler: skips, starts and records instances."""

    config: dict[str, Any]
    task_class: Callable[..., GPUTask] | str
    gpus: list[str]
    records: Records
    log: logging.Logger
    warm: bool
    results: list[TaskResult] = field(default_factory=list)

    def skip_done(self, instances: list[Instance]) -> list[Instance]:
        """Return the instances to run; log the others as skipped."""
        todo: list[Instance] = []
        for instance in instances:
            if self.config["force_rerun"] or not self.records.is_done(instance):
                todo.append(instance)
                continue
            gpu = self.gpus[len(self.results) % len(self.gpus)]
            self.log.info("%s receives task %s", gpu, instance.name)
            self.log.info("%s skips task %s", gpu, instance.name)
            self.results.append(TaskResult(instance.name, instance.work_dir, SKIPPED))
        return todo

    def run_all(self, instances: list[Instance]) -> None:
        """Run instances, and wait until all have ended."""
        import msgspec

        from stoker.task.call_files import call_argv
        from stoker.task.engine_session import EngineSession
        from stoker.task.options import GpuOptions
        from stoker.task.run import run_to_end

        opening = GpuOptions([gpu.split(",") for gpu in self.config["gpu"]]).make_open()
        session = EngineSession(msgspec.structs.replace(opening, in_advance=False))
        env = {} if "MPLBACKEND" in os.environ else {"MPLBACKEND": "Agg"}
        waiting: dict[int, tuple[Instance, str]] = {}

        def submit_all() -> None:
            for instance in instances:
                number = session.take_number()
                call = os.path.join(session.folder, f"{number}.call")
                python, *rest = call_argv(call)
                waiting[number] = (instance, call)
                session.submit(
                    instance.name,
                    number=number,
                    argv=[python, "-u", *rest],
                    env=env,
                    log=self._log_of(instance) or os.devnull,
                    ask=True,
                    warm=self._name_of_class() if self.warm else None,
                )

        def on_event(event: Event, job: Job) -> None:
            self._on_event(session, event, job, *waiting[job.number])

        run_to_end(session, submit_all, on_event)

    def _name_of_class(self) -> str:
        from stoker.task.call_files import name_of

        named = self.task_class
        return named if isinstance(named, str) else name_of(named)

    def _on_event(
        self, session: EngineSession, event: Event, job: Job, instance: Instance, call: str
    ) -> None:
        """Prepare a task when it gets its GPU, and record how it ended."""
        from stoker.task.call_files import remove_call
        from stoker.task.messages import Asked, Ended

        gpu = self.gpus[job.slots[0]] if job.slots else "no gpu"
        if isinstance(event, Asked):
            self.log.info("%s receives task %s", gpu, instance.name)
            try:
                session.answer(job, self._prepare(instance, call))
            except Exception as error:
                self.log.exception("%s cannot start task %s", gpu, instance.name)
                session.refuse(job, f"{type(error).__name__}: {error}")
        elif isinstance(event, Ended):
            remove_call(call)
            self.records.end(instance, success=job.ok)
            self.log.info("%s finishes task %s", gpu, instance.name)
            reason = None if job.ok else job.reason or job.state
            if reason is not None:
                self.log.error("%s task %s did not succeed: %s", gpu, instance.name, reason)
            result = TaskResult(instance.name, instance.work_dir, job.state, gpu, reason)
            self.results.append(result)

    def _prepare(self, instance: Instance, call: str) -> dict[str, str]:
        """Make the task's folder and call file; return the environment that it asks for."""
        from stoker.task.call_files import write_call

        self.records.begin(instance)
        os.makedirs(instance.work_dir, exist_ok=True)
        path = self._log_of(instance)
        if path is not None:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            open(path, "wb").close()
        if isinstance(self.task_class, str):
            named = (self.task_class, instance.config, instance.work_dir)
            write_call(call, run_named_task, named, is_loud=True)
            return {}
        task = self.task_class(instance.config, instance.work_dir)
        env = read_env(task)
        write_call(call, run_task, (task,), is_loud=True)
        return env

    def _log_of(self, instance: Instance) -> str | None:
        name = self.config["log_file"]
        return None if name is None else os.path.join(instance.work_dir, name)
