"""Forecast of how long jobs that share GPUs take: the policy on a simulated clock."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stoker.core.planner import Candidate
from stoker.core.sharing.parameters import CommandFacts, Params
from stoker.core.sharing.profile import Profile
from stoker.core.sharing.rules import NEVER
from stoker.engine.sharing import Sharing
from stoker.engine.slots import SlotTable
from stoker.simulator.simulation import Contender, Simulation, Span
from stoker.simulator.workload import Machine, Work

_LEAST_S = 0.001  # also for a job that is overdue


class Expected(msgspec.Struct, frozen=True):
    """A running or waiting job, and how many more seconds it needs alone on a GPU."""

    candidate: Candidate
    seconds: float


class Forecast:
    """Simulates the sharing policy, as if all GPUs were alike."""

    def __init__(self, sharing: Sharing, slot_table: SlotTable) -> None:
        self._sharing = sharing
        self._slot_table = slot_table

    def concerns(self, candidates: Sequence[Candidate]) -> bool:
        """Whether any of these jobs may share a GPU that there is."""
        asks = any(each.share is not None and each.slots == 1 for each in candidates)
        return asks and self._machine() is not None

    def suppose(self, facts: CommandFacts) -> None:
        """From now on, jobs with negative ids, which are not in the queue, are of this kind."""
        self._sharing.suppose(facts)

    def lone_s(self, candidate: Candidate) -> float | None:
        """How long a job takes alone on a GPU; None if no job of its kind has run alone."""
        if candidate.share is None:
            return None
        return self._profile(candidate).seconds_for(self._sharing.params_of(candidate))

    def seconds(self, jobs: Sequence[Expected]) -> float:
        """In how many seconds all jobs are over. Running jobs come first, then the queue in its order."""
        return self._simulate(jobs)[1]

    def spans(self, jobs: Sequence[Expected]) -> list[list[Span]]:
        """Return when and on which simulated GPUs each job runs, in seconds from now."""
        return self._simulate(jobs)[0]

    def _simulate(self, jobs: Sequence[Expected]) -> tuple[list[list[Span]], float]:
        machine = self._machine()
        assert machine is not None
        known: dict[str, Profile] = {}
        by_job = [self._works_of(job, machine, known) for job in jobs]
        works = [work for own in by_job for work in own]
        contender = Contender(name="queue", rules=self._sharing.rules)
        simulation = Simulation(works, machine, contender, known)
        makespan_s = simulation.run().makespan_s
        owner = [index for index, own in enumerate(by_job) for _work in own]
        found: list[list[Span]] = [[] for _job in jobs]
        for span in simulation.spans:
            found[owner[span.number]].append(span)
        return found, makespan_s

    def _works_of(self, job: Expected, machine: Machine, known: dict[str, Profile]) -> list[Work]:
        candidate = job.candidate
        profile = Profile()
        kind, share = "", NEVER
        params: Params = ()
        if candidate.share is not None and candidate.slots == 1:
            request = self._sharing.request_of(candidate)
            kind, params, share = request.kind, request.params, request.share
            profile = known[kind] = self._profile(candidate)
        # A job of an unknown kind is taken to need a whole GPU.
        found = profile.peak_for(params)
        held = int(found.value) if found is not None else max(profile.peaks, default=None)
        held = held or candidate.gpu_mem or machine.mem_bytes
        load = profile.sm_load
        work = Work(
            arrival_s=0.0,
            duration_s=max(job.seconds, _LEAST_S),
            memory=((0.0, min(held, machine.mem_bytes)),),
            sm=min(1.0, self._sharing.rules.unknown_sm if load is None else load),
            kind=kind,
            params=params,
            share=share,
            declared_bytes=candidate.gpu_mem if share != NEVER else None,
        )
        return [work] * max(1, candidate.slots)

    def _profile(self, candidate: Candidate) -> Profile:
        return self._sharing.profile_of(candidate)

    def _machine(self) -> Machine | None:
        """The GPUs that jobs can share, all as large as the smallest."""
        views = [
            self._sharing.view(state) for state in self._slot_table.whole_slots() if state.is_open
        ]
        sizes = [view.total_bytes for view in views if view is not None and view.blind is None]
        return Machine(len(sizes), min(sizes)) if sizes else None
