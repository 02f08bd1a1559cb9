import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks.errors import BenchError
from benchmarks.measure import Contestant
from benchmarks.process import no_leftovers, run_once

PATH = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def resident() -> Iterator[subprocess.Popen[bytes]]:
    """A daemon that was there before, and is at work."""
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as process:
        yield process
        process.kill()


def runner(script: str, cwd: str = ".") -> Contestant:
    argv = ["sh", "-c", script]
    return Contestant(name="runner", argv=argv, stdin="/dev/null", jobs=1, env=PATH, cwd=cwd)


def test_who_was_there_before_stays_and_what_it_uses_counts(
    resident: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    sample = run_once(runner("sleep 0.5"), str(tmp_path / "stderr"))
    assert resident.poll() is None
    assert sample.cpu_s > 0.05


def test_a_contestant_runs_in_its_own_folder(tmp_path: Path) -> None:
    run_once(runner("pwd -P > here", cwd=str(tmp_path)), str(tmp_path / "stderr"))
    assert (tmp_path / "here").read_text().strip() == str(tmp_path.resolve())


def test_a_contestant_that_fails_ends_the_benchmark(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="runner ended with status 3: no luck"):
        run_once(runner("echo no luck >&2; exit 3"), str(tmp_path / "stderr"))


def test_who_ends_with_the_block_is_seen_off(resident: subprocess.Popen[bytes]) -> None:
    with no_leftovers("guest"):
        guest = subprocess.Popen(["sleep", "60"])
        guest.kill()
    assert not Path(f"/proc/{guest.pid}").exists()
    assert resident.poll() is None
    guest.wait()


def test_who_stays_behind_ends_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.process._LEFTOVERS_TIMEOUT_S", 0.05)
    with pytest.raises(BenchError, match="guest left processes behind"), no_leftovers("guest"):
        guest = subprocess.Popen(["sleep", "60"])
    guest.kill()
    guest.wait()
