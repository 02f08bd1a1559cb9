"""The daemon raises its own limit of open files; everything it starts keeps the original one."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from patience import until
from stoker.wire import NewJob, NewSetting

if TYPE_CHECKING:
    from fault.home import Home
    from fault.work import Work

FEW = 200


@pytest.fixture
def few_files(home: Home) -> tuple[str, str]:
    """Start a daemon with a low soft limit; the soft and the hard limit that it was started with."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard > FEW
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard))
    try:
        home.start("--gpus", "0,1")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return str(FEW), str(hard)


def limits_of(pid: int) -> tuple[str, str]:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    words = next(line.split() for line in lines if line.startswith("Max open files"))
    return words[3], words[4]


def test_the_daemon_may_open_as_many_files_as_the_hard_limit_allows(
    home: Home, few_files: tuple[str, str]
) -> None:
    _soft, hard = few_files
    daemon = home.daemon()
    assert daemon is not None
    assert limits_of(daemon) == (hard, hard)


def test_supervisor_jobs_and_hooks_keep_the_limit_that_the_daemon_was_started_with(
    home: Home, work: Work, few_files: tuple[str, str]
) -> None:
    told = work.folder / "hook"
    hook = f"echo $(ulimit -Sn) $(ulimit -Hn) > {told}.new; mv {told}.new {told}"
    with home.client() as client:
        client.set_config(NewSetting(name="on-finish", value=hook))
        job = "echo $(ulimit -Sn) $(ulimit -Hn) > limits; exec sleep 600"
        client.add(work.submission([NewJob(command=job)]))
        client.add(work.submission([NewJob(command="true")]))
        until(told.exists, "the hook has run")
        until((work.folder / "limits").exists, "the job runs")

    assert [limits_of(pid) for pid in home.supervisors()] == [few_files]
    assert tuple(told.read_text().split()) == few_files
    until(lambda: tuple((work.folder / "limits").read_text().split()) == few_files)
