"""Admission of jobs to slots: pauses of the queue and of projects, limits and GPUs of projects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from stoker.engine.slots import SlotTable
from stoker.store import job_queries
from stoker.store.database import Database
from stoker.store.named_values import NamedValues

QUEUE = "queue"
_PROJECT = "project."
_NO_PROJECT = "no-project"


class Admission:
    """Decides which jobs may start. Pauses are kept in the database and survive a restart."""

    def __init__(self, database: Database, slot_table: SlotTable) -> None:
        self._database = database
        self._pauses = NamedValues(database, "paused.")
        self._failures = NamedValues(database, "failed.")
        self._slot_table = slot_table
        self.limits: dict[str, int] = {}
        self.gpus: dict[str, frozenset[str]] = {}
        self.placed = slot_table.placement.allowed
        self.load()

    def load(self) -> None:
        """Read the pauses from the database."""
        paused = {name: reason.decode() for name, reason in self._pauses.all().items()}
        self.queue_paused: str | None = paused.pop(QUEUE, None)
        # The key None stands for the jobs without a project.
        self.projects_paused: dict[str | None, str] = {
            None if name == _NO_PROJECT else name.removeprefix(_PROJECT): reason
            for name, reason in paused.items()
        }

    @property
    def is_plain(self) -> bool:
        """Whether every job may start: there is no pause, limit or restriction to GPUs."""
        return not (self.queue_paused or self.projects_paused or self.limits or self.gpus)

    def pause_queue(self, reason: str) -> None:
        """Start no more jobs. Call it inside a transaction."""
        self._pauses.put(QUEUE, reason.encode())
        self.queue_paused = reason

    def resume_queue(self) -> None:
        """Start jobs again. Call it inside a transaction."""
        self._pauses.forget(QUEUE)
        self.queue_paused = None

    def pause_project(self, project: str | None, reason: str) -> None:
        """Start no jobs of a project, or without one. Call it inside a transaction."""
        self._pauses.put(_key_of(project), reason.encode())
        self.projects_paused[project] = reason

    def resume_project(self, project: str | None) -> bool:
        """Start a project's jobs again. Returns whether it was paused. Call it inside a transaction."""
        self._pauses.forget(_key_of(project))
        return self.projects_paused.pop(project, None) is not None

    def rooms(self) -> Callable[[str | None], int | None]:
        """Return a function: how many more jobs of a project may start now; None if unlimited."""
        running = self.running() if self.limits else None

        def room(project: str | None) -> int | None:
            if self.queue_paused is not None or project in self.projects_paused:
                return 0
            limit = None if project is None else self.limits.get(project)
            return None if limit is None or running is None else max(0, limit - running[project])

        return room

    def running(self) -> Counter[str | None]:
        """Count the running jobs of each project."""
        return Counter(
            running.entry.facts.request.project
            for running in self._slot_table.running.values()
            if running.entry.facts is not None
        )

    def allowed(self, project: str | None, where: str | None = None) -> frozenset[int] | None:
        """The slots that a project may use where a job wants to run (`where`); None for all."""
        there = self._slot_table.placement.allowed(where)
        names = self.gpus.get(project) if project is not None else None
        if names is None:
            return there
        return frozenset(
            slot_state.slot.index
            for slot_state in self._slot_table.whole_slots()
            if self._slot_table.are_named(names, slot_state.slot)
            and (there is None or slot_state.slot.index in there)
        )

    def pauses(self, project: str | None) -> Iterable[str]:
        """The pauses that hold up a project, in words."""
        if self.queue_paused is not None:
            yield f"the queue is paused ({self.queue_paused}): stoker resume --queue"
        if project in self.projects_paused:
            reason = self.projects_paused[project]
            yield f"{name_of(project)} paused ({reason}): {remedy_of(project)}"

    def reasons(self, project: str | None) -> Iterable[str]:
        """Why no job of a project may start now, in words."""
        yield from self.pauses(project)
        limit = self.limits.get(project) if project is not None else None
        if limit is not None and self.running()[project] >= limit:
            some = "1 job" if limit == 1 else f"{limit} jobs"
            yield f"project {project} runs {some}, its limit (stoker config limit.{project})"

    def count_failure(self, project: str) -> int:
        """Count a failed job of a project. Returns the total. Call it inside a transaction."""
        count = int(self._failures.get(project) or 0) + 1
        self._failures.put(project, str(count).encode())
        return count

    def forget_failures(self, project: str) -> None:
        """Count a project's failures from 0 again. Call it inside a transaction."""
        self._failures.forget(project)

    def has_pending(self, project: str | None) -> bool:
        """Whether jobs of a project, or with None without one, have not started yet."""
        return job_queries.has_pending(self._database, project)


def name_of(project: str | None) -> str:
    """Name a project, or the jobs without one, as the subject of a sentence."""
    return "jobs without a project are" if project is None else f"project {project} is"


def remedy_of(project: str | None) -> str:
    """The command that resumes a paused project."""
    return "stoker resume --queue" + ("" if project is None else f" -P {project}")


def _key_of(project: str | None) -> str:
    return _NO_PROJECT if project is None else _PROJECT + project
