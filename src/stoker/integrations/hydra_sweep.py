"""The jobs of one Hydra sweep: their configurations, folders, calls and results."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus, filter_overrides
from hydra.errors import CompactHydraException
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict

from stoker import pid_lock
from stoker.client.client import Client
from stoker.core.lifecycle import is_final
from stoker.errors import ConflictError, UsageError
from stoker.integrations.queue_options import make_name
from stoker.integrations.queued_calls import find_jobs, makes_call, spell_ids
from stoker.sweeps.scalars import read_scalar
from stoker.task.call_files import JobError, load_result
from stoker.task.job import DONE, Job
from stoker.task.worker import RESULT

CALLS = ".stoker"  # below the folder of the sweep
_NOTE = ".json"
_LOCK = "lock"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept beside the call of a job: a digest of its configuration, and its number in the queue."""

    key: str
    id: int | None = None


class SweepJob(msgspec.Struct, kw_only=True, eq=False):
    """A job of a sweep. `path` is the file of its call; its output goes to `folder`."""

    number: int
    overrides: list[str]
    config: DictConfig
    folder: str
    path: str
    id: int | None = None  # in the queue

    @property
    def name(self) -> str:
        """Its overrides as a name; Hydra's own do not count."""
        return make_name([*filter_overrides(self.overrides)] or [str(self.config.hydra.job.name)])

    @property
    def params(self) -> str:
        """Its overrides as JSON, for params.json."""
        pairs = (each.lstrip("+").partition("=") for each in filter_overrides(self.overrides))
        return json.dumps({name: read_scalar(value) for name, _equals, value in pairs})

    @property
    def identity(self) -> str:
        """A digest that no job of another folder has."""
        return hashlib.sha256(os.fsencode(self.path)).hexdigest()

    def clear(self) -> None:
        """Remove what an earlier sweep in this folder has left for the job."""
        for name in (RESULT, _NOTE):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self.path}{name}")

    def write_note(self) -> None:
        """Keep what a later sweep in this folder needs to take the job over."""
        with open(f"{self.path}{_NOTE}", "wb") as file:
            file.write(msgspec.json.encode(Note(key=self._key(), id=self.id)))

    def read_note(self) -> Note | None:
        """Return the note of an earlier sweep if its job was the same."""
        note = _read_note(self.path)
        return note if note is not None and note.key == self._key() else None

    def load_success(self) -> JobReturn | None:
        """Return the result of an earlier sweep if the job was the same and succeeded."""
        if self.read_note() is None or not os.path.exists(f"{self.path}{RESULT}"):
            return None
        found = self.load(Job(number=self.number, command=self.name, state=DONE))
        return found if found.status is JobStatus.COMPLETED else None

    def load(self, end: Job) -> JobReturn:
        """Return what Hydra made of the job; for a job without a result, why it has none."""
        try:
            found = load_result(self.path, end)
            if isinstance(found, JobReturn):
                return found
            error: Exception = TypeError(f"{self.path}{RESULT} is no result of a Hydra job")
        except JobError as raised:  # Hydra prints the line alone
            error = CompactHydraException(f"stoker: {raised}")
        except Exception as raised:
            error = raised
        return JobReturn(
            overrides=self.overrides,
            cfg=self._task_config(),
            hydra_cfg=OmegaConf.masked_copy(self.config, "hydra"),
            working_dir=self.folder,
            task_name=str(self.config.hydra.job.name),
            status=JobStatus.FAILED,
            _return_value=error,
        )

    def _task_config(self) -> DictConfig:
        return OmegaConf.masked_copy(
            self.config, [str(name) for name in self.config if name != "hydra"]
        )

    def _key(self) -> str:
        text = "\0".join([*self.overrides, OmegaConf.to_yaml(self._task_config())])
        return hashlib.sha256(text.encode()).hexdigest()


class SweepFolder:
    """The folder of a sweep, with the calls and notes of its jobs."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._calls = os.path.join(root, CALLS)
        os.makedirs(self._calls, exist_ok=True)

    @property
    def shown(self) -> str:
        """The folder as `hydra.sweep.dir` takes it on a command line in this working folder."""
        near = os.path.relpath(self.root)
        return shlex.quote(self.root if near.startswith("..") else near)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock out other sweeps of this folder; ConflictError if one holds the lock."""
        fd = pid_lock.take(os.path.join(self._calls, _LOCK))
        if fd is None:
            raise ConflictError(
                f"another program is running or submitting jobs of the sweep folder {self.shown}:"
                " wait for it, or name another hydra.sweep.dir"
            )
        try:
            yield
        finally:
            os.close(fd)

    def refuse_live(self, client: Client) -> None:
        """Raise ConflictError if jobs of an earlier sweep in this folder still wait or run."""
        noted = {
            note.id: path
            for path in self._call_paths()
            if (note := _read_note(path)) is not None and note.id is not None
        }
        live = [
            job.id
            for job in find_jobs(client, noted).values()
            if not is_final(job.state) and makes_call(client, job.id, noted[job.id])
        ]
        if live:
            jobs, verb, them = ("job", "is", "it") if len(live) == 1 else ("jobs", "are", "them")
            raise ConflictError(
                f"{jobs} {spell_ids(live)} of an earlier sweep in {self.shown} {verb} still in the queue:"
                f" hydra.launcher.resume=true waits for {them}, stoker kill {spell_ids(live)} ends {them}"
            )

    def _call_paths(self) -> list[str]:
        return [
            os.path.join(self._calls, name.removesuffix(_NOTE))
            for name in os.listdir(self._calls)
            if name.endswith(_NOTE)
        ]


def _read_note(path: str) -> Note | None:
    try:
        with open(f"{path}{_NOTE}", "rb") as file:
            return msgspec.json.decode(file.read(), type=Note)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def make_jobs(
    context: HydraContext, config: DictConfig, overrides: Sequence[list[str]], first: int
) -> list[SweepJob]:
    """Compose the configuration of each job; UsageError where jobs of one sweep cannot differ."""
    jobs: list[SweepJob] = []
    folders: dict[str, int] = {}
    for number, each in enumerate(overrides, first):
        job = _make_job(context, config, each, number)
        other = folders.setdefault(job.folder, number)
        if other != number:
            raise UsageError(
                f"jobs {other} and {number} would both write to {job.folder}:"
                " let hydra.sweep.subdir differ, as ${hydra.job.num} does"
            )
        jobs.append(job)
    return jobs


def _make_job(
    context: HydraContext, config: DictConfig, overrides: list[str], number: int
) -> SweepJob:
    own = context.config_loader.load_sweep_config(config, overrides)
    with open_dict(own):
        own.hydra.job.id = str(number)
        own.hydra.job.num = number
    _refuse_own_launcher(config, own, overrides)
    root = os.path.abspath(str(config.hydra.sweep.dir))
    with _current(own):
        folder = os.path.abspath(
            os.path.join(str(own.hydra.sweep.dir), str(own.hydra.sweep.subdir))
        )
    path = os.path.join(root, CALLS, str(number))
    return SweepJob(number=number, overrides=overrides, config=own, folder=folder, path=path)


def _refuse_own_launcher(config: DictConfig, own: DictConfig, overrides: list[str]) -> None:
    """Refuse a file of a swept group that sets the launcher: Hydra has one launcher for all jobs."""
    usual = OmegaConf.to_container(config.hydra.launcher)
    chosen = OmegaConf.to_container(own.hydra.launcher)
    assert isinstance(usual, dict)
    assert isinstance(chosen, dict)
    names = [str(name) for name in {**usual, **chosen} if usual.get(name) != chosen.get(name)]
    if names:
        what = "another launcher" if "_target_" in names else f"hydra.launcher.{names[0]}"
        raise UsageError(
            f"{' '.join(overrides)} sets {what}, and all jobs of a sweep have the same one:"
            " set it on the command line or in the main file, or sweep those jobs by themselves"
        )


@contextlib.contextmanager
def _current(config: DictConfig) -> Iterator[None]:
    """Let `${hydra:…}` mean this configuration."""
    singleton: Any = HydraConfig.instance()
    outer = singleton.cfg
    singleton.set_config(config)
    try:
        yield
    finally:
        singleton.cfg = outer
