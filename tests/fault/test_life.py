"""A hostile life: four clients, random verbs, everything killed; nothing is lost, doubled or untrue."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fault.life import GPUS, Life
from fault.table import say
from fault.work import read_events
from patience import until

if TYPE_CHECKING:
    from fault.conftest import Tell
    from fault.home import Home

LONG_S = float(os.environ.get("STOKER_LIFE_S", "0"))
OPERATIONS, FAULTS = (2000, 100) if LONG_S else (160, 10)

pytestmark = pytest.mark.timeout(LONG_S + 300)


def test_a_hostile_life_loses_doubles_and_overlaps_nothing(
    home: Home, job_program: str, tell: Tell
) -> None:
    home.start("--gpus", ",".join(map(str, range(GPUS))))
    life = Life(home, job_program, seed=7)
    ends_at = time.monotonic() + LONG_S

    life.live(OPERATIONS, FAULTS, lambda: time.monotonic() < ends_at)
    life.settle()
    verdict = life.verdict()

    details = {**life.story.operations, **life.chaos.faults}
    say(f"{details}")
    tell("hostile life of four clients", sum(life.chaos.faults.values()), verdict, **details)
    assert verdict.is_clean, f"{verdict}\n{home.log()[-3000:]}"


def test_a_leftover_that_still_holds_its_gpu_is_seen_by_the_next_job(
    job_program: str, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    environment = {"CUDA_VISIBLE_DEVICES": "0", "STOKER_JOB_ID": "1", "STOKER_ATTEMPT": "1"}
    words = [job_program, str(record), "0", "0"]
    first = subprocess.Popen([*words, "0", "20000"], env=environment, start_new_session=True)
    assert first.wait() == 0
    try:
        subprocess.run(words, env={**environment, "STOKER_JOB_ID": "2"}, check=True)
    finally:
        os.killpg(first.pid, 9)

    until(lambda: len(read_events(record)) == 4)
    seats = [event.seat for event in read_events(record) if event.what == "start"]
    assert seats == [0, 1]
