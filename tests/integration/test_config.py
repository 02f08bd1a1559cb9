from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_settings_are_shown_changed_remembered_and_reset(queue: Queue) -> None:
    assert re.search(r"(?m)^keep\.days +90 +90 +\w", queue.ok("config"))
    assert queue.ok("config", "keep.days", "30") == "keep.days is 30 now\n"
    queue.ok("daemon", "restart")
    assert queue.ok("config", "keep.days") == "30\n"
    assert queue.ok("config", "keep.days", "--reset") == "keep.days is 90 now\n"


def test_json_is_a_list_or_one_setting(queue: Queue) -> None:
    names = [setting["name"] for setting in json.loads(queue.ok("config", "--json"))]

    assert {"gpus", "keep.days", "keep.jobs", "log.cap"} <= set(names)
    assert json.loads(queue.ok("config", "keep.days", "--json"))["value"] == "90"
    assert json.loads(queue.ok("config", "keep.days", "5", "--json"))["value"] == "5"


def test_unknown_settings_and_wrong_values_are_refused(queue: Queue) -> None:
    unknown, nonsense = queue("config", "keep.dogs", "3"), queue("config", "keep.days", "soon")

    assert unknown.code == 1
    assert "there is no setting 'keep.dogs': did you mean 'keep.jobs'?" in unknown.err
    assert nonsense.code == 2
    assert "keep.days cannot be 'soon'" in nonsense.err
    assert queue("config", "keep.dogs").code == 1
    assert queue("config", "--reset").code == 2
    assert queue.ok("config", "keep.days") == "90\n"


def test_a_setting_that_needs_a_restart_says_so(queue: Queue) -> None:
    for name, value in (("cluster.lease", "60s"), ("gpus", "0")):
        changed = queue("config", name, value)
        assert changed.out == f"{name} is {value} now\n"
        assert (
            changed.err == f"stoker: {name} takes effect after stoker daemon restart; jobs run on\n"
        )
    assert queue("config", "keep.days", "30").err == ""
    assert queue("config", "cluster.lease").err == ""
