"""What the real wandb, MLflow and TensorBoard write is found: `make stacks` installs them."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from typing import TYPE_CHECKING

import pytest

from scale import LONG

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

WANDB = """
import sys, wandb
level = float(sys.argv[1])
with wandb.init(mode="offline", project="p", settings=wandb.Settings(silent=True)) as run:
    for step in range(2000):
        run.log({"loss": level / (step + 1), "text": "x" * 50})
    run.summary["best"] = level / 2000
"""
MLFLOW = """
import sys, mlflow
level = float(sys.argv[1])
with mlflow.start_run():
    for step in range(20):
        mlflow.log_metric("loss", level / (step + 1), step=step)
    mlflow.log_metric("best", level / 2000)
"""
TENSORBOARD = """
import os, sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
level = float(sys.argv[1])
writer = EventFileWriter(os.environ["STOKER_RUN_DIR"] + "/tb")
for step in range(20):
    values = [("loss", level / (step + 1)), ("best", level / 2000)]
    summary = Summary(value=[Summary.Value(tag=t, simple_value=v) for t, v in values])
    writer.add_event(Event(step=step, summary=summary))
writer.close()
"""


@pytest.mark.skipif(not LONG, reason="make stacks runs it")
@pytest.mark.parametrize(
    ("library", "script", "last"),
    [("wandb", WANDB, 1999), ("mlflow", MLFLOW, 19), ("tensorboard", TENSORBOARD, 19)],
)
def test_what_a_logger_writes_is_in_the_results(
    queue: Queue, library: str, script: str, last: int
) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed: make stacks installs it")
    queue.stoker.file("train.py", script)
    command = f"{shlex.quote(sys.executable)} train.py {{level}}"

    queue.ok("sweep", "--name", "s", "-g", "0", "--warm", "never", command, "level=2,4")
    queue.ok("wait")

    rows = queue.ok("results", "s", "--columns", "level,step,loss,best", "--csv").split()
    assert rows[0] == "level,step,loss,best"
    for row, level in zip(rows[1:], (2, 4), strict=True):
        found, step, loss, best = map(float, row.split(","))
        assert (found, step) == (level, last)
        assert loss == pytest.approx(level / (last + 1))
        assert best == pytest.approx(level / 2000)
