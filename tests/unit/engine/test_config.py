from __future__ import annotations

import os

import pytest

from stoker.core import setting_names
from stoker.engine.config import ENTRIES, OF_PROJECTS
from stoker.errors import NotFoundError, UsageError
from stoker.service.config import change_config, read_config
from stoker.store.config_records import record_setting
from stoker.wire import NewSetting, Setting
from unit.engine.engine_harness import Harness, MakeHarness


def put(harness: Harness, name: str, value: str | None) -> Setting:
    return change_config(harness.context, NewSetting(name=name, value=value))


def test_every_setting_has_a_default_that_it_would_accept_itself(harness: Harness) -> None:
    for setting in read_config(harness.context):
        assert setting.value == setting.default
        assert setting.meaning
        ENTRIES[setting.name].parse(setting.default)
    assert [setting.name for setting in read_config(harness.context)] == list(ENTRIES)


def test_what_is_set_stays_set_through_a_restart(harness: Harness) -> None:
    assert put(harness, "keep.days", "7").value == "7"
    put(harness, "log.cap", "20M")
    harness.restart()

    assert harness.context.config.value("keep.days") == 7
    assert harness.context.config.log_cap_bytes == 20 * 2**20


def test_none_and_the_default_itself_put_the_default_back(harness: Harness) -> None:
    for value in (None, "90"):
        put(harness, "keep.days", "7")
        assert put(harness, "keep.days", value).value == "90"
    assert harness.database.execute("SELECT count(*) FROM config").fetchone() == (0,)


def test_the_defaults_mean_what_they_say(harness: Harness) -> None:
    config = harness.context.config
    assert config.gpus is None
    assert config.log_cap_bytes is None
    assert config.cpu_places == len(os.sched_getaffinity(0))
    assert config.value("keep.jobs") == 100_000


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("gpus", ["default", "0", "0,1", "0-3", "0+1,2+3", "all", "GPU-abc"]),
        ("gpus-with-others", ["yes", "no"]),
        ("cpu.jobs", ["auto", "1", "10000"]),
        ("keep.days", ["1", "36500"]),
        ("keep.jobs", ["0", "999999999999"]),
        ("log.cap", ["none", "4096", "4K", "500K", "20M", "1G"]),
        ("gpulimit.safety_keep_memory", ["0", "0.25", "1"]),
        ("gpulimit.safety_keep_gpu_memory", ["0.0", "0.5", "1.0"]),
        ("gpulimit.max_running_tasks", ["-1", "1", "8"]),
        ("gpulimit.max_err_times", ["1", "5"]),
        ("gpulimit.timer_polling_time", ["10", "0.5"]),
        ("mark.stall", ["never", "10s", "2h"]),
        ("on-nan.p", ["notify", "stop", "mark"]),
        ("stall.p", ["20m", "never"]),
        ("idle.p", ["15m", "never"]),
    ],
)
def test_values_that_make_sense_are_taken(harness: Harness, name: str, values: list[str]) -> None:
    for value in values:
        assert put(harness, name, value).value == value


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("gpus", ["", " ", "3-1", "0+0", "0-99999"]),
        ("gpus-with-others", ["", "true", "1"]),
        ("cpu.jobs", ["0", "-1", "many", "", "1.5", "10001", "9" * 5000]),
        ("keep.days", ["0", "-1", "x", "", "9" * 13]),
        ("keep.jobs", ["-1", "1e3", "9" * 13]),
        ("gpulimit.safety_keep_memory", ["-0.1", "1.1", "20%", "", "nan", "1e-1"]),
        ("gpulimit.safety_keep_gpu_memory", ["2", ".5", "half"]),
        ("gpulimit.max_running_tasks", ["0", "-2", "1.5"]),
        ("gpulimit.max_err_times", ["0", "1.5", "-1"]),
        ("gpulimit.timer_polling_time", ["0", "-1", "inf", ""]),
        ("mark.idle", ["", "15", "-1m", "0s", "soon", "9" * 5000 + "m"]),
        ("on-nan.p", ["", "kill", "yes"]),
        ("stall.p", ["", "20", "no"]),
        ("log.cap", ["0", "1K", "4095", "K", "", "20MB", "-1G", "9" * 5000 + "G", "1 G"]),
    ],
)
def test_values_that_make_no_sense_are_refused_in_one_line_and_change_nothing(
    harness: Harness, name: str, values: list[str]
) -> None:
    before = read_config(harness.context)
    for value in values:
        with pytest.raises(UsageError, match=name) as caught:
            put(harness, name, value)
        assert len(str(caught.value).splitlines()) == 1
    assert read_config(harness.context) == before


def test_a_setting_that_does_not_exist_is_an_error_that_lists_those_that_do(
    harness: Harness,
) -> None:
    with pytest.raises(NotFoundError, match=r"no setting 'colour': there are: gpus, gpus-drained"):
        put(harness, "colour", "blue")


def test_a_setting_of_projects_without_a_project_is_explained(harness: Harness) -> None:
    assert {f"{name}." for name in setting_names.OF_PROJECTS} == OF_PROJECTS.keys()
    with pytest.raises(NotFoundError) as caught:
        put(harness, "stall", "20m")
    assert str(caught.value) == (
        "there is no setting 'stall': did you mean 'stall.PROJECT' for a project, or stoker add --stall for"
        " a job, or 'mark.stall'?"
    )
    with pytest.raises(NotFoundError, match=r"did you mean 'limit.PROJECT' for a project\?$"):
        put(harness, "limit", "2")


def test_more_places_for_jobs_without_gpu_are_used_at_once(make_harness: MakeHarness) -> None:
    harness = make_harness(cpu_places=1)
    harness.add("a", "b", "c", gpus=0)
    assert harness.executor.running == ["1.1"]
    put(harness, "cpu.jobs", "3")
    harness.settle()

    assert harness.executor.running == ["1.1", "2.1", "3.1"]


def test_fewer_places_end_nothing_that_runs(make_harness: MakeHarness) -> None:
    harness = make_harness(cpu_places=3)
    harness.add("a", "b", "c", "d", gpus=0)
    put(harness, "cpu.jobs", "1")
    harness.settle()
    assert harness.executor.running == ["1.1", "2.1", "3.1"]

    for key in ("1.1", "2.1"):
        harness.end(key)
    assert harness.executor.running == ["3.1"]
    harness.end("3.1")
    assert harness.executor.running == ["4.1"]


def test_whoever_cuts_logs_hears_of_a_new_cap(harness: Harness) -> None:
    version = harness.context.events.version
    put(harness, "log.cap", "4K")

    assert harness.context.events.version != version


def test_settings_of_earlier_versions_keep_their_effect(harness: Harness) -> None:
    with harness.database.transaction():
        record_setting(harness.database, "on_fail", "mail me")
        record_setting(harness.database, "cluster.lease", "60")
    harness.context.config.load()

    assert harness.context.config.text("on-fail") == "mail me"
    assert harness.context.config.lease_s == 60.0
    assert "on-fail" in [setting.name for setting in read_config(harness.context)]
    put(harness, "on-fail", None)
    assert harness.context.config.text("on-fail") == "none"
