"""Hydra's configuration of the launcher, and the classes that Hydra finds by it.

Every program that uses Hydra imports this module where Stoker is installed, so it imports nothing of Stoker
until a sweep is launched. There is no `from __future__ import annotations`: Hydra's scanner executes the
module before it is in `sys.modules`, where dataclasses would look for postponed annotations.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

_HERE = "hydra_plugins.stoker_launcher.launcher"


@dataclass
class StokerLauncherConf:
    """Options of the launcher. Texts are written as for `stoker add`: `gpu_mem: 10G`, `timeout: 2h`."""

    _target_: str = f"{_HERE}.StokerLauncher"
    defaults: list[Any] = field(
        default_factory=lambda: [
            {"/hydra/stoker_check@_global_.hydra.callbacks.stoker": "single_run"},
            "_self_",
        ]
    )
    gpus: int = 1  # GPUs of each job
    gpu_mem: str | None = None
    share: str = "auto"
    cpus: int | None = None
    mem: str | None = None
    warm: str = "auto"
    timeout: str | None = None
    retries: int = 0
    backoff: str | None = None
    foreground: bool = False  # in an engine of this process alone, without the queue
    devices: str | None = None  # the GPUs of a foreground sweep: 0,1
    max_workers: int | None = None  # jobs at once of a foreground sweep with gpus=0
    # Take the results that this sweep folder has already, and wait for its jobs that the queue has.
    resume: bool = False
    # What follows is for the queue alone.
    project: str | None = None  # by default the name of Hydra's job
    priority: int = 0
    node: str | None = None
    gpu_model: str | None = None
    on_nan: str | None = None
    stall: str | None = None
    idle: str | None = None
    preemptible: bool = False
    preempt: bool = False
    checkpoint: str | None = None  # hf, lightning
    signal: str | None = None
    grace: str | None = None


@dataclass
class SingleRunCheckConf:
    """Adds the check to Hydra's callbacks, where the launcher is chosen."""

    _target_: str = f"{_HERE}.SingleRunCheck"


class SingleRunCheck(Callback):  # type: ignore[misc]  # Hydra need not be installed
    """Refuses a launcher on the command line of a single run: Hydra does not use it, and says nothing."""

    def on_run_start(self, config: DictConfig, **_more: Any) -> None:
        """Exit if the command line names the launcher; one in a file is for the sweeps of that program."""
        if "hydra/launcher=stoker" in config.hydra.overrides.hydra:
            raise SystemExit(
                "stoker: hydra/launcher=stoker is for sweeps: add -m (--multirun), or leave it out"
            )


class StokerLauncher(Launcher):  # type: ignore[misc]
    """Runs the jobs of a sweep on Stoker's queue, or in the foreground."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.config: DictConfig | None = None
        self.hydra_context: HydraContext | None = None
        self.task_function: TaskFunction | None = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Take what the sweep is made of."""
        self.hydra_context = hydra_context
        self.task_function = task_function
        self.config = config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run one job for each list of overrides, and return how each ended."""
        from stoker.integrations.hydra_launcher import launch

        assert self.hydra_context is not None
        assert self.task_function is not None
        assert self.config is not None
        return launch(
            self.hydra_context,
            self.task_function,
            self.config,
            self.options,
            [list(overrides) for overrides in job_overrides],
            initial_job_idx,
        )


_store = ConfigStore.instance()
_store.store("single_run", SingleRunCheckConf, group="hydra/stoker_check", provider="stoker")
_store.store("stoker", StokerLauncherConf, group="hydra/launcher", provider="stoker")
