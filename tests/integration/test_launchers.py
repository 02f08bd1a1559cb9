"""Jobs on several GPUs under the launchers that people use: `make stacks` installs them."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

import pytest

from scale import LONG

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

pytestmark = pytest.mark.skipif(
    not LONG or importlib.util.find_spec("torch") is None, reason="make stacks runs it"
)

# Two processes that meet, and stay until those of the other job have met as well.
TRAIN = """
import os, time
from pathlib import Path
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
Path(f"met-{os.environ['STOKER_JOB_ID']}-{dist.get_rank()}").touch()
while len(list(Path().glob("met-*"))) < 4:
    time.sleep(0.05)
print("world", dist.get_world_size(), "sum", int(total))
dist.destroy_process_group()
"""


@pytest.mark.timeout(300)
def test_two_torchruns_with_two_processes_each_run_at_once(idle_queue: Queue) -> None:
    idle_queue.start("0,1,2,3")
    (idle_queue.work / "train.py").write_text(TRAIN)
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
    jobs = [idle_queue.add("-g", "2", sys.executable, *words) for _ in range(2)]
    idle_queue.ok("wait")

    for job in jobs:
        assert idle_queue.ok("log", str(job)).count("world 2 sum 3") == 2
        assert len(idle_queue.show(job)["attempts"]) == 1
