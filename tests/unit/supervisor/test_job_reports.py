"""Files in memory to which jobs write what they used."""

from __future__ import annotations

import os

import pytest

from stoker.supervisor.job_reports import JobReports
from stoker.warm.messages import REPORT_BYTES


def write(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)


def test_each_job_has_a_file_of_its_own() -> None:
    reports = JobReports()
    paths = {key: reports.open(key) for key in ("1.1", "2.1", "3.1")}
    write(paths["1.1"], b"5")
    write(paths["2.1"], b"7")
    assert [reports.take(key) for key in ("1.1", "2.1", "3.1", "4.1")] == [5, 7, 0, 0]
    assert not any(map(os.path.exists, paths.values()))


def test_a_job_cannot_make_its_file_larger() -> None:
    reports = JobReports()
    path = reports.open("1.1")
    fd = os.open(path, os.O_WRONLY)
    try:
        with pytest.raises(PermissionError):
            os.write(fd, b"9" * (REPORT_BYTES + 1))
        for size in (0, 1 << 30):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
    finally:
        os.close(fd)
    assert reports.take("1.1") == 0
