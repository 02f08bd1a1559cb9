"""Where the output of a command goes whose log the user named."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from stoker.core.job import Attempt
from stoker.engine.command_log import remove_log, start_log


def test_a_log_starts_afresh_and_a_retry_has_its_own(tmp_path: Path) -> None:
    first, second = tmp_path / "7.log", tmp_path / "7.2.log"
    for each in (first, second):
        each.write_text("of an earlier run")

    assert start_log(str(first), Attempt(7, 1)) == str(first)
    assert not first.exists()
    assert second.exists()
    assert start_log(str(first), Attempt(7, 2)) == str(second)
    assert not second.exists()


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("number", [1, 2])
def test_a_device_or_fifo_is_used_as_it_is(tmp_path: Path, number: int, linked: bool) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    named = tmp_path / "link"
    named.symlink_to(path)
    log = str(named if linked else path)

    assert start_log(log, Attempt(7, number)) == log
    remove_log(log)
    assert stat.S_ISFIFO(os.lstat(path).st_mode)
    assert named.is_symlink()


def test_a_link_that_leads_nowhere_is_removed(tmp_path: Path) -> None:
    link = tmp_path / "7.log"
    link.symlink_to(tmp_path / "gone")

    assert start_log(str(link), Attempt(7, 1)) == str(link)
    assert not link.is_symlink()
