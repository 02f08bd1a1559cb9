"""What the runs of a sweep have in common, as they are submitted."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.errors import UsageError
from stoker.sweeps.plan import plan_sweep
from stoker.sweeps.queueing import describe_runs
from stoker.wire import Submission

DEFINITION = {
    "command": "python t.py {lr}",
    "parameters": {"lr": [1, 2]},
    "name": "s",
    "warm": ["torch"],
    "resources": {"gpus": 2, "gpu_mem": "1G", "timeout": "1h", "retries": 3, "priority": 4},
}


def describe(given: dict[str, Any], **changes: Any) -> Submission:
    sweep = plan_sweep({**DEFINITION, **changes}, base="/work")
    return describe_runs(sweep, b"/work", given, {"by_page": True})


def test_runs_have_the_options_of_the_definition() -> None:
    common = describe({})
    assert (common.share, list(common.warm)) == ("auto", ["torch"])
    assert (common.gpus, common.gpu_mem_bytes, common.timeout_s) == (2, 2**30, 3600)
    assert (common.retries, common.priority) == (3, 4)
    assert (common.sweep, common.project, common.cwd) == ("s", "s", "/work")
    assert (common.by_page, common.env) == (True, {})


def test_limits_of_runs_that_waste_a_gpu_are_options_too() -> None:
    resources = {"on_nan": "stop", "stall": "20m", "idle": "never"}
    common = describe({"idle_s": 60.0, "stall_s": None}, resources=resources)
    assert (common.on_nan, common.stall_s, common.idle_s) == ("stop", 1200.0, 60.0)
    assert describe({}, resources=resources).idle_s == 0.0


def test_a_given_option_overrides_the_definition() -> None:
    given = {"share": "never", "warm": ["numpy"], "gpus": 0, "timeout": "2h", "retries": None}
    common = describe(given)
    assert (common.share, list(common.warm), common.gpus) == ("never", ["numpy"], 0)
    assert (common.timeout_s, common.retries) == (7200, 3)


def test_runs_of_a_definition_without_resources_share_one_gpu() -> None:
    common = describe({}, resources={}, warm="auto")
    assert (common.gpus, common.share, list(common.warm)) == (1, "auto", ["auto"])
    assert (common.timeout_s, common.gpu_mem_bytes) == (None, None)


@pytest.mark.parametrize("given", [{"gpus": 5000}, {"retries": 5000}, {"on": ""}])
def test_an_option_out_of_its_bounds_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="a wrong option of the sweep"):
        describe(given)
