import array
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks.cases.gap import read_gaps_us
from benchmarks.errors import BenchError
from benchmarks.measure import Contestant


def runner(jobs: int) -> Contestant:
    return Contestant(name="runner", argv=["true"], stdin="/dev/null", jobs=jobs, env={})


def stamps(path: Path, *jobs: tuple[int, int]) -> str:
    path.write_bytes(array.array("q", [stamp for job in jobs for stamp in job]).tobytes())
    return str(path)


def test_a_gap_lies_between_an_end_and_the_next_start(tmp_path: Path) -> None:
    path = stamps(tmp_path / "stamps", (1_000, 2_000), (5_000, 6_000), (7_500, 8_000))
    assert read_gaps_us(path, runner(3)) == [3.0, 1.5]


def test_a_missing_job_is_noticed(tmp_path: Path) -> None:
    path = stamps(tmp_path / "stamps", (1, 2), (3, 4))
    with pytest.raises(BenchError, match="ran 2 of 3 jobs"):
        read_gaps_us(path, runner(3))


def test_two_jobs_at_once_on_one_slot_are_noticed(tmp_path: Path) -> None:
    path = stamps(tmp_path / "stamps", (1_000, 5_000), (4_000, 6_000))
    with pytest.raises(BenchError, match="two jobs at once"):
        read_gaps_us(path, runner(2))
