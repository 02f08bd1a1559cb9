"""A study of Optuna in the folder of a sweep.

The file `study.log` is a journal of Optuna, which optuna-dashboard opens. One process at a time may steer it.
Samplers have no state here: a suggestion depends only on the trials of the study and on the trial's number.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from stoker import pid_lock
from stoker.errors import ConflictError, UsageError
from stoker.sweeps.plan import Sweep
from stoker.sweeps.space import Axis, Dimension
from stoker.tuning.search_space import SearchSpace
from stoker.tuning.trial import Trial

FILE = "study.log"
LOCK = ".study.pid"
_OPTUNA_LOCK = f"{FILE}.lock"
_ABOUT, _ORDER = "stoker", "stoker order"
_JOB, _RUN, _EXCLUDED = "job", "run", "excluded"
_MOST_EXCLUDED = 200
_LOCK_WITHIN_S = 10.0
_STEP_S = 0.05


class About(msgspec.Struct, frozen=True):
    """What a study belongs to: its own key, and digests of the parts of the sweep's definition."""

    key: str
    command: str
    parameters: str
    metric: str


class Tally(msgspec.Struct, frozen=True):
    """How many trials there are, without excluded ones."""

    complete: int = 0
    pruned: int = 0
    failed: int = 0
    live: int = 0

    @property
    def all(self) -> int:
        """All trials."""
        return self.complete + self.pruned + self.failed + self.live


class StudyLock:
    """Lets one process at a time steer the study of a folder; the kernel gives it back when that ends."""

    def __init__(self, root: str, name: str, within_s: float = _LOCK_WITHIN_S) -> None:
        """Take the lock; ConflictError if another process keeps it."""
        path = os.path.join(root, LOCK)
        deadline = time.monotonic() + within_s
        while (fd := _take(root, path)) is None:
            if time.monotonic() > deadline:
                pid = pid_lock.holder_pid(path) or "unknown"
                raise ConflictError(
                    f"another process ({pid}) steers sweep {name} in {root}: wait until it has ended,"
                    " or give this sweep another name (--name)"
                )
            time.sleep(_STEP_S)
        self._fd = fd

    def release(self) -> None:
        """Let another process steer the study."""
        os.close(self._fd)


def _take(root: str, path: str) -> int | None:
    try:
        os.makedirs(root, exist_ok=True)
        return pid_lock.take(path)
    except OSError as error:
        raise UsageError(f"cannot write to {root}: {error.strerror}", field="cwd") from error


class Study:
    """Asks for trials and tells their results. Its file is complete after each call."""

    def __init__(self, sweep: Sweep, notify: Callable[[str], None] = lambda _text: None) -> None:
        """Open or create the study of a sweep; the caller holds its lock."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._sweep = sweep
        self.space = SearchSpace(sweep.space)
        self.path = os.path.join(sweep.root, FILE)
        self.was_unreadable = False
        storage = self._open_storage(notify)
        self._study = self._open_study(storage)
        self._about = self._check_about()

    @property
    def key(self) -> str:
        """What tells this study from all others."""
        return self._about.key

    def _open_storage(self, notify: Callable[[str], None]) -> JournalStorage:
        os.makedirs(self._sweep.root, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # of a process that was killed
            os.unlink(os.path.join(self._sweep.root, _OPTUNA_LOCK))
        _cut_unfinished_line(self.path)
        try:
            return JournalStorage(JournalFileBackend(self.path))
        except OSError:
            raise
        except Exception:  # whatever a damaged journal leads Optuna to
            aside = _free_name(f"{self.path}.unreadable")
            os.rename(self.path, aside)
            self.was_unreadable = True
            notify(
                f"{self.path} cannot be read: it is now {aside}, and is made again from the runs"
            )
            return JournalStorage(JournalFileBackend(self.path))

    def _open_study(self, storage: JournalStorage) -> optuna.Study:
        name = self._sweep.name
        names = [each.study_name for each in storage.get_all_studies()]
        if names and name not in names:
            raise UsageError(
                f"{self.path} is the study of {names[0]}, not of sweep {name}: move it away, or give the"
                " sweep another name (--name)"
            )
        directions = [
            StudyDirection.MAXIMIZE if metric.is_maximized else StudyDirection.MINIMIZE
            for metric in self._sweep.metrics
        ]
        if names:
            return optuna.load_study(study_name=name, storage=storage)
        return optuna.create_study(study_name=name, storage=storage, directions=directions)

    def _check_about(self) -> About:
        known = self._study.user_attrs.get(_ABOUT)
        if known is None:
            if self._study.get_trials(deepcopy=False):
                raise UsageError(
                    f"{self.path} was not made by Stoker: move it away, or give the sweep another name"
                    " (--name)"
                )
            about = About(uuid.uuid4().hex[:16], *_digests(self._sweep))
            self._study.set_user_attr(_ABOUT, msgspec.to_builtins(about))
            return about
        about = msgspec.convert(known, About)
        for part, digest in zip(
            ("command", "parameters", "metric"), _digests(self._sweep), strict=True
        ):
            if getattr(about, part) != digest:
                other = "other parameters" if part == "parameters" else f"another {part}"
                raise UsageError(
                    f"{self.path} belongs to a sweep with {other}: give this sweep another name (--name),"
                    " or move the file away"
                )
        return about

    def ask(self) -> Trial:
        """Begin a trial."""
        for attempt in range(_MOST_EXCLUDED):
            number = len(self._study.get_trials(deepcopy=False))
            self._study.sampler = self._make_sampler(number, random=attempt > _MOST_EXCLUDED // 2)
            asked = self._study.ask()
            point = self.space.choose(asked)
            if not self.space.is_excluded(point):
                return self._trial(asked.number, point)
            asked.set_user_attr(_EXCLUDED, True)
            self._study.tell(asked, state=TrialState.FAIL)
        raise UsageError(
            f"the excludes left none of {_MOST_EXCLUDED} points that were tried: exclude less"
        )

    def _make_sampler(self, number: int, *, random: bool) -> optuna.samplers.BaseSampler:
        seed = _seed(f"{self._sweep.space.seed}/{number}")
        if random:
            return optuna.samplers.RandomSampler(seed=seed)
        return optuna.samplers.TPESampler(seed=seed, constant_liar=True)

    def _trial(self, number: int, point: dict[str, Any], job: int | None = None) -> Trial:
        return Trial(number, self._sweep.trial(number, point, self.key), job)

    def live(self) -> list[Trial]:
        """Return the trials that have not ended. A trial that was cut off while it was asked is completed."""
        return list(self._live())

    def _live(self) -> Iterator[Trial]:
        for frozen in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self._study.sampler = self._make_sampler(frozen.number, random=False)
            point = self.space.choose(optuna.trial.Trial(self._study, frozen._trial_id))
            if self.space.is_excluded(point):
                self._set(frozen, _EXCLUDED, True)
                self.fail(frozen.number)
                continue
            yield self._trial(frozen.number, point, frozen.user_attrs.get(_JOB))

    def begin_order(self, order: str) -> int:
        """Return how many trials had failed when an order to run this sweep came; they do not count for it.

        The number is recorded with the first call for an order, so that it stays the same.
        """
        known = self._study.user_attrs.get(_ORDER)
        if known is None or known[0] != order:
            known = [order, self.tally().failed]
            self._study.set_user_attr(_ORDER, known)
        return int(known[1])

    def note_job(self, trial: Trial, job: int) -> None:
        """Record the job of a trial, and its folder for people who look at the study."""
        frozen = self._frozen(trial.number)
        self._set(frozen, _RUN, trial.run.id)
        self._set(frozen, _JOB, job)

    def complete(self, number: int, values: Sequence[float]) -> None:
        """End a trial with its values."""
        self._study.tell(number, list(values), skip_if_finished=True)

    def prune(self, number: int, value: float | None, iterations: int) -> None:
        """End a trial that was stopped early, with its last value."""
        frozen = self._frozen(number)
        if frozen.state is not TrialState.RUNNING:
            return
        if value is not None and not frozen.intermediate_values:
            optuna.trial.Trial(self._study, frozen._trial_id).report(value, iterations)
        self._study.tell(number, state=TrialState.PRUNED, skip_if_finished=True)

    def fail(self, number: int) -> None:
        """End a trial that has no result."""
        self._study.tell(number, state=TrialState.FAIL, skip_if_finished=True)

    def tally(self) -> Tally:
        """Count the trials."""
        trials = self._study.get_trials(deepcopy=False)
        states = [trial.state for trial in trials if _EXCLUDED not in trial.user_attrs]
        return Tally(
            complete=states.count(TrialState.COMPLETE),
            pruned=states.count(TrialState.PRUNED),
            failed=states.count(TrialState.FAIL),
            live=states.count(TrialState.RUNNING),
        )

    def values(self) -> list[list[float]]:
        """Return the values of the trials that are complete."""
        trials = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return [trial.values for trial in trials]

    def enter(self, params: dict[str, Any], values: Sequence[float]) -> bool:
        """Enter a run that has ended with these values; False if its parameters are not of this space."""
        encoded = self.space.encode(params)
        if encoded is None:
            return False
        found, distributions = encoded
        self._study.add_trial(
            optuna.trial.create_trial(
                params=found, distributions=distributions, values=list(values)
            )
        )
        return True

    def _frozen(self, number: int) -> FrozenTrial:
        return self._study.get_trials(deepcopy=False)[number]

    def _set(self, frozen: FrozenTrial, name: str, value: Any) -> None:
        self._study._storage.set_trial_user_attr(frozen._trial_id, name, value)


def _digests(sweep: Sweep) -> tuple[str, str, str]:
    """Return digests of what must not change in a study: command, parameters, metric."""
    space = sweep.space
    parameters = (
        [(name, cell.json) for name, cell in space.fixed],
        [[_describe(each) for each in block.dimensions] for block in space.blocks],
        [condition.text for condition in space.exclude],
    )
    metric = [(each.name, each.goal) for each in sweep.metrics]
    return _digest(sweep.command), _digest(repr(parameters)), _digest(repr(metric))


def _describe(dimension: Dimension) -> tuple[str, ...]:
    when = "" if dimension.when is None else dimension.when.text
    if isinstance(dimension, Axis):
        values = repr(dimension.values), repr(dimension.weights)
    else:
        values = repr(dimension.distribution), ""
    return (*dimension.names, when, *values)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def _cut_unfinished_line(path: str) -> None:
    """Remove what a full disk left of a last line: Optuna could not read what follows it."""
    with contextlib.suppress(FileNotFoundError), open(path, "r+b") as file:
        data = file.read()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            file.truncate(whole)


def _free_name(path: str) -> str:
    number = 1
    while os.path.exists(f"{path}.{number}"):
        number += 1
    return f"{path}.{number}"
