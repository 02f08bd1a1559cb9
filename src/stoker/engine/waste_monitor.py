"""Monitor of running attempts that waste a GPU: what marks them, and what ends them.

`core/waste.py` judges. This module knows the attempts, their files and samples, and whose rule applies.
Marks are not on record: after a restart of the daemon the clocks begin again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping

import msgspec

from stoker.core.durations import spell_duration
from stoker.core.job import Ending, Request
from stoker.core.waste import Mark, Output, Waste, WasteRules, WasteWatch
from stoker.engine.config import Config
from stoker.engine.gpu_features import GpuFeatures
from stoker.engine.output_tail import OutputTail
from stoker.engine.running_attempt import RunningAttempt
from stoker.reporting import METRICS

_LONGEST_PAUSE_S = 10.0
_SHORTEST_PAUSE_S = 1.0
_LOOKS = 4  # in the shortest limit


class Finding(msgspec.Struct, frozen=True):
    """An attempt that wastes its GPU. `is_new`: it was not found for this before. `ending`: how to end it."""

    running: RunningAttempt
    mark: Mark
    is_new: bool
    notifies: bool
    ending: Ending | None
    reason: str


class Subject(msgspec.Struct):
    """One attempt, and what is known of it."""

    running: RunningAttempt
    watch: WasteWatch
    tail: OutputTail | None = None
    sampled_at: float = 0.0  # by the sampler's clock: later samples have not been read yet
    mark: Mark | None = None
    found: set[Waste] = msgspec.field(default_factory=set)
    shares_log: bool = False  # other attempts that run write to its log too

    def read(self) -> Output | None:
        """Read what the attempt has written since the last look; None if that is unknown."""
        if self.tail is None:
            return None
        return self.tail.look(finds_losses=self.watch.needs_losses, is_shared=self.shares_log)


class WasteMonitor:
    """Judges running attempts. `is_away` tells whether a node cannot be reached."""

    def __init__(
        self,
        gpus: GpuFeatures,
        config: Config,
        clock: Callable[[], float],
        is_away: Callable[[str], bool],
    ) -> None:
        self._gpus = gpus
        self._config = config
        self._clock = clock
        self._is_away = is_away
        self._subjects: dict[str, Subject] = {}
        self.pause_s = _LONGEST_PAUSE_S
        """How long to wait before the next review."""
        self.has_changed = False
        """Whether the last review set or removed a mark."""

    @property
    def is_watching(self) -> bool:
        """Whether there is an attempt to review."""
        return bool(self._subjects)

    def mark_of(self, running: RunningAttempt) -> tuple[Mark, float] | None:
        """The mark of an attempt, and for how many seconds it has been so; None if it has none."""
        subject = self._subjects.get(running.key)
        if subject is None or subject.mark is None:
            return None
        return subject.mark, max(0.0, self._clock() - subject.mark.since)

    def begin(self, attempts: Collection[RunningAttempt]) -> list[Subject]:
        """Begin a review of these attempts; returns those whose output is to be read for it.

        Nothing is read of an attempt that was not there at the review before: most jobs that are short
        cost nothing.
        """
        now = self._clock()
        known, self._subjects = self._subjects, {}
        to_read = []
        writers = Counter(running.log for running in attempts)
        for running in filter(_can_be_judged, attempts):
            subject = known.get(running.key)
            if subject is None or subject.running is not running:
                subject = Subject(running, WasteWatch(now))
            elif not self._is_still(running):
                subject.tail = subject.tail or _tail_of(running)
                subject.shares_log = writers[running.log] > 1
                to_read.append(subject)
            self._subjects[running.key] = subject
        return to_read

    def review(
        self, outputs: Mapping[str, Output | None], running: Mapping[str, RunningAttempt]
    ) -> list[Finding]:
        """Judge the attempts that still run by what they wrote; None where that is unknown."""
        now = self._clock()
        look = None if self._gpus.monitor is None else self._gpus.monitor.look()
        uses = {} if look is None else look.jobs
        self.has_changed = False
        shortest_s = _LOOKS * _LONGEST_PAUSE_S
        findings: list[Finding] = []
        for key, subject in self._subjects.items():
            if running.get(key) is not subject.running:
                continue
            use = uses.get(key)
            self._observe(subject, outputs, now, alone=use is not None and use.so_far.alone)
            rules = rules_of(self._config, subject.running.entry.request)
            shortest_s = min(shortest_s, rules.shortest_s)
            findings += self._judge(subject, rules, now)
        self.pause_s = max(_SHORTEST_PAUSE_S, shortest_s / _LOOKS)
        return findings

    def _observe(
        self, subject: Subject, outputs: Mapping[str, Output | None], now: float, *, alone: bool
    ) -> None:
        key, watch = subject.running.key, subject.watch
        samples = None
        if subject.running.slots:
            samples = self._gpus.samples_since(key, subject.sampled_at)
        if samples:
            subject.sampled_at = samples[-1][0]
        if self._is_still(subject.running):
            watch.begin_again(now)
            return
        if key in outputs:
            watch.see_output(outputs[key], now)
        watch.see_gpu(samples or (), now, alone=alone)

    def _is_still(self, running: RunningAttempt) -> bool:
        """Whether nothing can be expected of an attempt: it is paused, suspended or out of reach."""
        return running.is_stopped or self._is_away(running.where)

    def _judge(self, subject: Subject, rules: WasteRules, now: float) -> list[Finding]:
        verdicts = subject.watch.judge(now, rules)
        shown = verdicts[0].mark if verdicts else None
        was = None if subject.mark is None else subject.mark.kind
        self.has_changed |= was is not (None if shown is None else shown.kind)
        subject.mark = shown
        findings = []
        for verdict in verdicts:
            kind = verdict.mark.kind
            ends = verdict.ends and not self._is_still(subject.running)
            findings.append(
                Finding(
                    running=subject.running,
                    mark=verdict.mark,
                    is_new=kind not in subject.found,
                    notifies=kind is Waste.DIVERGED and rules.on_nan == "notify",
                    ending=Ending(kind.value) if ends else None,
                    reason=f"{kind.value}: {verdict.mark.text} ({self._origin(subject, kind)})",
                )
            )
            subject.found.add(kind)
        return findings

    def _origin(self, subject: Subject, kind: Waste) -> str:
        """The option or the setting that ends an attempt, as it is typed."""
        request = subject.running.entry.request
        options = request.options
        given: dict[Waste, tuple[str, str | None]] = {
            Waste.DIVERGED: ("on-nan", options.on_nan),
            Waste.STALLED: ("stall", _spell(options.stall_s)),
            Waste.IDLE: ("idle", _spell(options.idle_s)),
        }
        name, value = given[kind]
        if value is not None:
            return f"--{name} {value}"
        setting = f"{name}.{request.project}"
        return f"{setting} {self._config.text(setting)}"


def rules_of(config: Config, request: Request) -> WasteRules:
    """The rules for a job: its own options, else those of its project, else marks alone."""
    options, project = request.options, request.project
    stall_s = config.of_project("stall.", project) if options.stall_s is None else options.stall_s
    idle_s = config.of_project("idle.", project) if options.idle_s is None else options.idle_s
    return WasteRules(
        on_nan=options.on_nan or config.of_project("on-nan.", project),
        mark_stall_s=config.value("mark.stall"),
        mark_idle_s=config.value("mark.idle"),
        end_stall_s=stall_s or None,
        end_idle_s=idle_s or None,
    )


def _spell(seconds: float | None) -> str | None:
    return spell_duration(seconds) if seconds else None


def _can_be_judged(running: RunningAttempt) -> bool:
    """Whether an attempt has a process that nothing ends yet, and is no session of a user who thinks."""
    is_batch = running.entry.request.options.interactive is None
    return running.pid is not None and running.end_request is None and is_batch


def _tail_of(running: RunningAttempt) -> OutputTail | None:
    if running.log is None:
        return None
    facts = running.entry.facts
    folder = None if facts is None else facts.run_dir
    metrics = None if folder is None else os.path.join(os.fsdecode(folder), METRICS)
    started_at = (running.started_at_us or 0) / 1e6
    return OutputTail(running.log, running.log_since, metrics, started_at)
