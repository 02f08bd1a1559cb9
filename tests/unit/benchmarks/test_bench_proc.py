import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks import proc

BURN = "import time\nwhile time.process_time() < 0.2: pass"


def test_own_cpu_time_is_the_same_by_ticks_and_by_the_scheduler() -> None:
    me = os.getpid()
    ticks_s, exact_s = proc.cpu_s(me), proc.exact_cpu_s(me)
    while proc.cpu_s(me) - ticks_s < 0.2:
        pass
    assert proc.exact_cpu_s(me) - exact_s == pytest.approx(0.2, rel=0.5)


def test_a_tree_costs_what_its_parts_cost_also_those_that_are_gone() -> None:
    before_s = proc.tree_cpu_s(os.getpid())
    own_s = proc.cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", BURN], check=True)
    in_all_s = proc.tree_cpu_s(os.getpid()) - before_s
    assert in_all_s - (proc.cpu_s(os.getpid()) - own_s) >= 0.15


def test_a_process_that_sleeps_ten_times_is_woken_ten_times() -> None:
    nap = "for _ in range(10): time.sleep(0.001)"
    program = f"import time\ninput('ready\\n')\n{nap}\ninput('awake\\n')"
    with subprocess.Popen(
        [sys.executable, "-uc", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        before = proc.wakeups(child.pid)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "awake\n"
        assert proc.wakeups(child.pid) - before >= 10
        child.communicate("\n")


def test_memory_shared_with_others_counts_in_part() -> None:
    me = os.getpid()
    assert 0 < proc.pss_bytes(me) <= proc.rss_bytes(me) * 1.1
    assert proc.rss_bytes(me) <= proc.peak_bytes(me) * 1.1


def test_a_process_that_is_gone_uses_nothing() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert proc.cpu_s(child.pid) == proc.tree_cpu_s(child.pid) == 0.0
    assert proc.rss_bytes(child.pid) == 0
    assert proc.children_of(child.pid) == []
