"""Limits of interactive attempts: warns before a time limit ends one, and ends one that is idle."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable

import msgspec

from stoker.core.durations import spell_duration
from stoker.core.usage import computes
from stoker.engine.gpu_features import GpuFeatures
from stoker.engine.running_attempt import RunningAttempt
from stoker.interactive.session import Folder

_WARN_LEFT_S = (300.0, 60.0)
_WARN_IDLE_S = 60.0
_LONGEST_PAUSE_S = 5.0
_SHORTEST_PAUSE_S = 0.1


class _Session(msgspec.Struct):
    """What is known of one interactive attempt; times are of the engine's clock."""

    used_at: float
    sampled_at: float = 0.0  # by the sampler's clock: later samples have not been read yet
    warned_left: float | None = None  # the last warning of the time limit
    warned_idle_at: float | None = None


class InteractiveLimits:
    """Reviews the interactive attempts. `end` is called with an idle attempt and the reason.

    `limit_of` returns the time limit of an attempt: its own, or that of the machine's rules.
    """

    def __init__(
        self,
        gpus: GpuFeatures,
        clock: Callable[[], float],
        limit_of: Callable[[RunningAttempt], float | None],
        end: Callable[[RunningAttempt, str], None],
    ) -> None:
        self._gpus = gpus
        self._clock = clock
        self._limit_of = limit_of
        self._end = end
        self._sessions: dict[str, _Session] = {}

    @property
    def is_watching(self) -> bool:
        """Whether the last review saw an attempt."""
        return bool(self._sessions)

    def review(self, attempts: Iterable[RunningAttempt], folder: Folder) -> float:
        """Warn and end what is due; returns after how many seconds to review again."""
        now = self._clock()
        known = {each.key: each for each in attempts}
        live = {key: each for key, each in known.items() if each.pid is not None}
        if not self._sessions:  # also what was left while no daemon ran
            _remove_files(folder, folder.keys() - known.keys())
        for key in self._sessions.keys() - live.keys():
            del self._sessions[key]
            _remove_files(folder, {key})
        dues = [now + _LONGEST_PAUSE_S]
        for key, running in live.items():
            session = self._sessions.setdefault(key, _Session(used_at=now))
            if running.end_request is None:
                self._warn_of_limit(running, session, folder, now, dues)
                self._check_idle(running, session, folder, now, dues)
        return max(_SHORTEST_PAUSE_S, min(dues) - now)

    def _warn_of_limit(
        self,
        running: RunningAttempt,
        session: _Session,
        folder: Folder,
        now: float,
        dues: list[float],
    ) -> None:
        limit_s = self._limit_of(running)
        if running.deadline is None or limit_s is None or running.is_stopped:
            return
        left_s = running.deadline - now
        passed = [each for each in _WARN_LEFT_S if left_s <= each < limit_s]
        dues += [running.deadline - each for each in _WARN_LEFT_S if left_s > each]
        latest = min(passed, default=None)
        if latest is not None and (session.warned_left is None or latest < session.warned_left):
            folder.notify(running.key, _limit_warning(running, limit_s, left_s))
        session.warned_left = latest

    def _check_idle(
        self,
        running: RunningAttempt,
        session: _Session,
        folder: Folder,
        now: float,
        dues: list[float],
    ) -> None:
        idle_s = running.entry.request.options.idle_s
        if not idle_s:
            return
        if running.is_stopped or self._uses_gpu(running, session):
            session.used_at = now
        typed_at = folder.used_at(running.key)
        if typed_at is not None:
            session.used_at = max(session.used_at, now - max(0.0, time.time() - typed_at))
        warn_s = min(_WARN_IDLE_S, idle_s / 2)
        warn_at = session.used_at + idle_s - warn_s
        if now < warn_at:
            session.warned_idle_at = None
            dues.append(warn_at)
        elif session.warned_idle_at is None:
            session.warned_idle_at = now
            folder.notify(running.key, _idle_warning(running, now - session.used_at, warn_s))
            dues.append(now + warn_s)
        elif now >= session.warned_idle_at + warn_s:
            self._end(running, f"idle for {spell_duration(idle_s)}: no GPU use and no typing")
        else:
            dues.append(session.warned_idle_at + warn_s)

    def _uses_gpu(self, running: RunningAttempt, session: _Session) -> bool:
        """Whether an attempt has computed since the last review; true if its GPUs cannot be observed."""
        if not running.slots:
            return False
        new = self._gpus.samples_since(running.key, session.sampled_at)
        if new is None:
            return True
        if new:
            session.sampled_at = new[-1][0]
        return any(map(computes, new))


def _remove_files(folder: Folder, keys: set[str]) -> None:
    for key in keys:
        with contextlib.suppress(OSError):
            folder.remove_attempt(key)


def _limit_warning(running: RunningAttempt, limit_s: float, left_s: float) -> str:
    job = running.attempt.job
    text = f"job {job} ends in {_minutes(left_s)}, at"
    if limit_s != running.entry.request.timeout_s:
        return f"{text} the time limit of {spell_duration(limit_s)} that this machine's rules set"
    limit, more = spell_duration(limit_s), spell_duration(2 * limit_s)
    return f"{text} its time limit of {limit}; stoker set {job} timeout={more} gives it more"


def _idle_warning(running: RunningAttempt, unused_s: float, left_s: float) -> str:
    is_terminal = running.entry.request.options.interactive == "terminal"
    typing, remedy = ("typing", "press a key") if is_terminal else ("requests", "use it")
    what = f"GPU use and {typing}" if running.slots else typing
    return (
        f"job {running.attempt.job} is idle ({_minutes(unused_s)} without {what}): it ends in"
        f" {_minutes(left_s)}; {remedy} to keep it"
    )


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))}s"
    return f"{round(seconds / 60)}m"
