"""`forecast`: how jobs that are not in the queue would run."""

from __future__ import annotations

import math
import time

from stoker.core.planner import Candidate
from stoker.core.sharing.parameters import CommandFacts
from stoker.core.sharing.rules import Mode
from stoker.engine.context import QueueContext
from stoker.engine.what_if import Supposed
from stoker.wire import Prediction, ProjectDelay, TimelinePlan, WhatIf


def what_if(context: QueueContext, order: WhatIf) -> Prediction:
    """Foretell when jobs would start and be over, and which projects they would delay. Adds nothing."""
    slots = len([*context.engine.slot_table.whole_slots()])
    if order.gpus > slots:
        return Prediction(problem=f"this queue has {slots} GPUs, not {order.gpus}")
    foretold = context.eta.what_if(_suppose(order))
    if foretold is None:
        return Prediction(problem="nothing is known yet of how long such jobs take")
    now = time.time()
    paused = next(iter(context.admission.pauses(order.project)), "").rpartition(": stoker")[0]
    if order.gpus == 0:
        rounds = math.ceil(order.runs / max(1, context.engine.slot_table.cpu_places))
        return Prediction(
            run_s=foretold.run_s,
            like=foretold.like,
            start_at=now,
            end_at=now + rounds * foretold.run_s,
            paused=paused or None,
        )
    if not foretold.planned:
        return Prediction(
            run_s=foretold.run_s,
            like=foretold.like,
            problem="no GPU of this queue can take such a job now: stoker gpus says why",
        )
    delays = sorted(foretold.delays.items(), key=lambda each: -each[1])
    return Prediction(
        run_s=foretold.run_s,
        like=foretold.like,
        start_at=now + min(each.start_s for each in foretold.planned),
        end_at=now + max(each.end_s for each in foretold.planned),
        paused=paused or None,
        delays=[ProjectDelay(project=name, delay_s=delay_s) for name, delay_s in delays],
        planned=[
            TimelinePlan(
                job=each.job,
                name=order.name,
                project=order.project,
                slots=list(each.slots),
                start_at=now + each.start_s,
                end_at=now + each.end_s,
            )
            for each in foretold.planned
        ],
    )


def _suppose(order: WhatIf) -> Supposed:
    return Supposed(
        candidate=Candidate(
            slots=order.gpus,
            project=order.project,
            share=None if order.share == Mode.NEVER.value else order.share,
            gpu_mem=order.gpu_mem_bytes,
            cpus=order.cpus,
            mem_bytes=order.mem_bytes,
            id=-1,
            priority=order.priority,
        ),
        facts=CommandFacts(order.command.split(), order.cwd, None, order.params or None),
        name=order.name,
        runs=order.runs,
        run_s=order.run_s,
    )
