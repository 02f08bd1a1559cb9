"""Preempted trainings of real libraries go on from what they have saved: `make stacks` installs them."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scale import LONG

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

EXAMPLES = Path(__file__).parents[2] / "examples" / "preempt"

pytestmark = pytest.mark.skipif(not LONG, reason="make stacks runs it")


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("framework", "library"), [("hf", "transformers"), ("lightning", "lightning")]
)
def test_a_preempted_training_goes_on_from_the_checkpoint_that_it_saved(
    queue: Queue, framework: str, library: str
) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed: make stacks")
    script = str(EXAMPLES / f"train_{framework}.py")
    options = ("--preemptible", "--checkpoint", framework)
    job = queue.add(*options, "--", sys.executable, script, "--steps", "250")

    def has_begun(attempt: int) -> bool:
        attempts = queue.show(job)["attempts"]
        return len(attempts) == attempt and "goes on from" in queue("log", str(job)).out

    queue.stoker.until(lambda: has_begun(1), "it trains", 300.0)
    queue.ok("preempt", str(job))
    queue.stoker.until(lambda: has_begun(2), "it trains again", 300.0)
    queue.ok("wait", str(job))

    log = queue.ok("log", str(job))
    begun = re.search(r"goes on from (?:step |checkpoint-)(\d+)", log)
    assert begun is not None, log
    assert 0 < int(begun[1]) < 250
    assert "ends at step 250 of 250" in log
    assert [each["state"] for each in queue.show(job)["attempts"]] == ["preempted", "done"]
