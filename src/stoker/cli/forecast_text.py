"""The forecast of jobs that are not added: `starts in ~4m, done ~22:40, delays project vision by 9m`."""

from __future__ import annotations

import time

from stoker.core.durations import format_duration, format_roughly

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.client.client import Client
    from stoker.sweeps.plan import Run
    from stoker.wire import NewJob, Prediction, Submission, WhatIf

_SOON_S = 2.0
_DAY_S = 20 * 3600.0
_DELAYS = 3
_LEAST_DELAY_S = 10.0
_BASES = {
    "given": "",
    "kind": "",
    "program": " (as runs of this program took)",
    "any": " (as other jobs took; such a job has not run yet)",
}


def describe_order(common: Submission, runs: int, example: Run | NewJob | None) -> WhatIf | None:
    """Return the question for so many jobs like this one, with the options of a submission."""
    import json

    from stoker.wire import WhatIf, from_wire

    if example is None:
        return None
    command, params = example.command, {}
    if isinstance(command, list):
        command = b" ".join(map(from_wire, command)).decode("utf-8", "replace")
    elif not isinstance(command, str):
        command = from_wire(command).decode("utf-8", "replace")
    if common.sweep is not None:
        params = json.loads(getattr(example, "params_json", "{}"))
    return WhatIf(
        command=command,
        cwd=from_wire(common.cwd).decode("utf-8", "replace"),
        params=params,
        runs=runs,
        name=common.name,
        project=common.project,
        gpus=common.gpus,
        share=common.share,
        gpu_mem_bytes=common.gpu_mem_bytes,
        cpus=common.cpus,
        mem_bytes=common.mem_bytes,
        priority=common.priority,
    )


def print_forecast(message: dict[str, Any], *, as_json: bool) -> int:
    """Print when the jobs of a submission, all taken to be like the first, would start and be over."""
    import msgspec

    from stoker.client.client import Client
    from stoker.errors import UsageError
    from stoker.wire import Submission

    try:
        submission = msgspec.convert({**message, "request_id": "dry-run-"}, Submission)
    except msgspec.ValidationError as error:
        raise UsageError(str(error)) from None
    order = describe_order(submission, len(submission.jobs), submission.jobs[0])
    assert order is not None
    with Client() as client:
        if as_json:
            from stoker.cli.messages import print_json

            print_json(client.forecast(order))
        else:
            print(describe_forecast(client.forecast(order), time.time()))
    return 0


def foretell_sweep(client: Client, order: WhatIf) -> str | None:
    """Return the line; None if it would say no more than that its runs start now and were never measured."""
    found, now = client.forecast(order), time.time()
    if found.like == "kind" or (found.start_at or now) - now > _SOON_S:
        return describe_forecast(found, now)
    return None


def describe_forecast(prediction: Prediction, now: float) -> str:
    """Return the line."""
    if prediction.start_at is None or prediction.end_at is None or prediction.run_s is None:
        return prediction.problem or "nothing is known"
    wait_s = prediction.start_at - now
    start = "starts now" if wait_s < _SOON_S else f"starts in ~{format_roughly(wait_s)}"
    parts = [f"{prediction.paused}; once it is resumed, {start}" if prediction.paused else start]
    is_far = prediction.end_at - now > _DAY_S
    form = "%a %H:%M" if is_far else "%H:%M"
    parts.append(f"done ~{time.strftime(form, time.localtime(prediction.end_at))}")
    delays = [each for each in prediction.delays if each.delay_s >= _LEAST_DELAY_S]
    for each in delays[:_DELAYS]:
        whom = f"project {each.project}" if each.project else "jobs without a project"
        parts.append(f"delays {whom} by {format_roughly(each.delay_s)}")
    if len(delays) > _DELAYS:
        parts.append(f"and {len(delays) - _DELAYS} more projects")
    parts.append(f"{format_duration(prediction.run_s)} each{_BASES[prediction.like or 'given']}")
    return ", ".join(parts)
