"""Processes of a pilot: a guard and a member, of which each ends everything when the other dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patience import until
from stoker import pid_lock
from stoker.cluster.pilot import remove_dead_homes

_PILOT = """
import os, subprocess, sys, time
from stoker.cluster.pilot import run_bound
from stoker.cluster.ray_folder import prepare_ray_folder
home, pids = sys.argv[1:]
os.mkdir(home)
def work():
    prepare_ray_folder(home)
    orphan = "setsid sh -c 'trap \"\" TERM HUP; echo $$ >>%s; sleep 1000' & exit" % pids
    subprocess.run(["sh", "-c", orphan], check=True)
    with open(pids, "a") as file:
        print("member", os.getpid(), file=file)
    time.sleep(1000)
sys.exit(run_bound(home, work))
"""


@pytest.fixture
def pilot(tmp_path: Path) -> tuple[subprocess.Popen[bytes], int, int, Path]:
    """Start a pilot with an orphan that ignores signals: its guard, its member, the orphan and its home."""
    home, pids = tmp_path / "home", tmp_path / "pids"
    process = subprocess.Popen([sys.executable, "-c", _PILOT, str(home), str(pids)])
    words = until(lambda: pids.exists() and len(w := pids.read_text().split()) == 3 and w)
    assert isinstance(words, list)
    at = words.index("member")
    member = int(words.pop(at + 1))
    words.remove("member")
    return process, member, int(words[0]), home


def is_alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("victim", ["guard", "member"])
def test_when_guard_or_member_is_killed_the_other_ends_all_and_removes_the_home(
    pilot: tuple[subprocess.Popen[bytes], int, int, Path], victim: str
) -> None:
    guard, member, orphan, home = pilot
    ray = Path(os.readlink(home / "cluster" / "ray"))  # Ray needs a shorter path than the home has
    assert ray.is_dir()
    os.kill(guard.pid if victim == "guard" else member, signal.SIGKILL)
    guard.wait(60)
    until(lambda: not (is_alive(member) or is_alive(orphan)), "all has ended")
    until(lambda: not home.exists(), "the home is gone")
    assert not ray.parent.exists()


def test_a_pilot_that_is_asked_to_end_ends_all_and_exits_with_0(
    pilot: tuple[subprocess.Popen[bytes], int, int, Path],
) -> None:
    guard, member, orphan, home = pilot
    guard.terminate()
    assert guard.wait(60) == 0
    assert not any(map(is_alive, (member, orphan)))
    assert not home.exists()


def test_a_pilot_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    home, pids = tmp_path / "home", tmp_path / "pids"
    words = [sys.executable, "-c", _PILOT, str(home), str(pids)]
    script = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    parent = subprocess.Popen([sys.executable, "-c", script, *words])
    until(lambda: pids.exists() and len(pids.read_text().split()) == 3)
    parent.kill()
    parent.wait(60)
    started = [int(word) for word in pids.read_text().split() if word.isdigit()]
    until(lambda: not any(map(is_alive, started)), "all has ended")
    until(lambda: not home.exists(), "the home is gone")


def test_only_homes_of_pilots_that_are_dead_for_a_while_are_removed(tmp_path: Path) -> None:
    homes = {name: tmp_path / f"stoker-node-{name}" for name in ("dead", "fresh", "living")}
    for home in homes.values():
        (home / "cluster").mkdir(parents=True)
        (home / "cluster" / "pilot.lock").touch()
    held = pid_lock.take(str(homes["living"] / "cluster" / "pilot.lock"))
    assert held is not None
    for name in ("dead", "living"):
        past = time.time() - 3600
        os.utime(homes[name] / "cluster" / "pilot.lock", (past, past))
    (tmp_path / "stoker-node-strange").mkdir()

    remove_dead_homes(str(tmp_path))

    assert {path.name for path in tmp_path.iterdir()} == {
        "stoker-node-fresh",
        "stoker-node-living",
        "stoker-node-strange",
    }
    os.close(held)
