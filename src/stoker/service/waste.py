"""Reviews running jobs that waste a GPU: marks them, tells hooks, and ends those that rules end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

from stoker.core.waste import Output
from stoker.engine.context import QueueContext
from stoker.engine.waste_monitor import Finding, Subject
from stoker.service.blocking_calls import call_in_thread
from stoker.service.kill import end_attempt

_SHARE = 20  # reading takes at most 1/_SHARE of a processor, whatever jobs write
_PATIENCE_S = 5.0
_MOST_HUNG = 4
_PAUSE_S = 1.0


async def review_for_ever(context: QueueContext) -> None:
    """Review the running jobs while there are any; sleep otherwise."""
    reader = OutputReader()
    while True:
        version = context.events.version
        await review(context, reader)
        if context.waste.is_watching:
            await asyncio.sleep(context.waste.pause_s)
        else:
            await context.events.changed_since(version)
            await asyncio.sleep(_PAUSE_S)  # a busy queue changes often


async def review(context: QueueContext, reader: OutputReader) -> None:
    """Review the running jobs once."""
    running = context.engine.slot_table.running
    subjects = context.waste.begin([*running.values()])
    outputs = await reader.read(subjects, context.waste.pause_s / _SHARE)
    for finding in context.waste.review(outputs, running):
        _act(context, finding)
    if context.waste.has_changed:
        context.events.touch()


def _act(context: QueueContext, finding: Finding) -> None:
    running, mark = finding.running, finding.mark
    if finding.is_new:
        context.hooks.on_mark(running, mark, notifies=finding.notifies)
        if finding.notifies:
            text = f"job {running.attempt.job} has {mark.kind.value}: {mark.text}"
            context.publisher.on_notice(text)
    if finding.ending is not None:
        end_attempt(context, running, finding.reason, finding.ending)


class OutputReader:
    """Reads the output of jobs in threads: a file system may hang.

    A thread that hangs is left alone, and so is its job until the thread goes on. The others are read by the
    next thread.
    """

    def __init__(self) -> None:
        self._hung: dict[str, asyncio.Future[None]] = {}
        self._round = 0
        self._last_read: dict[str, int] = {}  # the round in which a job was read last

    async def read(self, subjects: Sequence[Subject], budget_s: float) -> dict[str, Output | None]:
        """Return what they have written since the last time; None where a file system hangs.

        Jobs that are not reached within the processor time are left out; those come first that have waited
        for longest.
        """
        if not subjects:
            return {}
        self._hung = {key: task for key, task in self._hung.items() if not task.done()}
        if len(self._hung) >= _MOST_HUNG:
            return dict.fromkeys(each.running.key for each in subjects)
        wanted = [each for each in subjects if each.running.key not in self._hung]
        wanted.sort(key=lambda each: self._last_read.get(each.running.key, 0))
        batch = _Batch(wanted, budget_s)
        task = asyncio.ensure_future(call_in_thread(batch.read))
        done, _pending = await asyncio.wait((task,), timeout=_PATIENCE_S)
        if done:
            task.result()
        else:
            self._hung[batch.give_up()] = task
        outputs = batch.outputs | dict.fromkeys(self._hung)
        self._round += 1
        known = {each.running.key: self._last_read.get(each.running.key, 0) for each in wanted}
        self._last_read = known | dict.fromkeys(outputs, self._round)
        return outputs


class _Batch:
    """Jobs that one thread reads, one after another."""

    def __init__(self, subjects: Sequence[Subject], budget_s: float) -> None:
        self.outputs: dict[str, Output | None] = {}
        self._subjects = subjects
        self._budget_s = budget_s
        self._now_read = ""
        self._is_given_up = False
        self._lock = threading.Lock()

    def read(self) -> None:
        """Read all of them, or as many as the budget allows."""
        begun_s = time.thread_time()
        for subject in self._subjects:
            with self._lock:
                if self._is_given_up or time.thread_time() - begun_s > self._budget_s:
                    return
                self._now_read = subject.running.key
            output = subject.read()
            with self._lock:
                if not self._is_given_up:
                    self.outputs[subject.running.key] = output

    def give_up(self) -> str:
        """Read no more; returns the key of the job whose files are being read."""
        with self._lock:
            self._is_given_up = True
            return self._now_read
