"""The helpers of the queue's benchmarks."""

import array
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks.arena import Arena, remove_homes, warn_of_removal
from benchmarks.cases.add import CHANGED, FILES, make_dirty_repository
from benchmarks.cases.bulk_add import Pace, pace
from benchmarks.cases.queue_million import Dispatch
from benchmarks.line import read_head
from benchmarks.peers import Peer, Peers
from benchmarks.stamp import read_stamps

PEER = Peer("peer", "/bin/true", "1")
PEERS = Peers(
    stoker=PEER,
    python=PEER,
    xargs=PEER,
    parallel=PEER,
    simple_gpu_scheduler=PEER,
    tsp=PEER,
    gflow=PEER,
)


def test_a_pace_counts_starts_and_the_longest_time_without_one() -> None:
    ms = 1_000_000
    starts = [5 * ms, 110 * ms, 120 * ms, 150 * ms, 900 * ms]
    found = pace(starts, 100 * ms, 200 * ms)
    assert found.starts_per_s == pytest.approx(30.0)
    assert found.largest_gap_ms == 50.0


def test_a_stretch_without_a_start_is_one_gap() -> None:
    assert pace([], 0, 10_000_000) == Pace(starts_per_s=0.0, largest_gap_ms=10.0)


def test_stamps_come_in_the_order_of_their_starts(tmp_path: Path) -> None:
    path = tmp_path / "stamps"
    path.write_bytes(array.array("q", [5, 9, 1, 7]).tobytes())
    assert read_stamps(str(path)) == [(1, 7), (5, 9)]


def test_a_job_costs_what_daemon_and_supervisor_use() -> None:
    dispatch = Dispatch(jobs=1000, wall_s=1.0, daemon_cpu_s=0.1, supervisor_cpu_s=0.15)
    assert dispatch.cpu_us_per_job == pytest.approx(250.0)


def test_a_head_tells_the_status_and_the_length_of_the_body() -> None:
    assert read_head(b"HTTP/1.1 404 Not Found\r\nContent-Length: 12\r\ndate: x") == (404, 12)
    assert read_head(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked") == (200, 0)


def test_a_dirty_repository_has_changes_that_git_sees(tmp_path: Path) -> None:
    folder = make_dirty_repository(str(tmp_path / "repository"))
    told = subprocess.run(
        ["git", "-C", folder, "status", "--porcelain"], capture_output=True, text=True, check=True
    )
    files = subprocess.run(
        ["git", "-C", folder, "ls-files"], capture_output=True, text=True, check=True
    )
    assert len(told.stdout.splitlines()) == CHANGED
    assert len(files.stdout.splitlines()) == FILES


def test_every_home_is_another_and_all_go_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arena = Arena(folder=str(tmp_path), peers=PEERS, env={"A": "b"}, rounds=1, quick=True)
    with arena.home() as one, arena.home() as two:
        assert one["STOKER_HOME"] != two["STOKER_HOME"]
        assert one["STOKER_LEASE_DIR"].startswith(one["STOKER_HOME"])
        assert one["A"] == "b"
    assert Path(one["STOKER_HOME"]).is_dir()
    warn_of_removal(str(tmp_path))
    assert capsys.readouterr().err == ""
    remove_homes(str(tmp_path))
    assert not Path(one["STOKER_HOME"]).exists()
    warn_of_removal(str(tmp_path))
    assert "files were deleted here 0 s ago" in capsys.readouterr().err


def test_peers_are_printed_in_the_order_they_are_named() -> None:
    assert PEERS.all() == (PEER,) * 7
