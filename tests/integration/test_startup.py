"""What the verbs that people type all day import: each module delays their answer."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from stoker.client.client import Client
from stoker.client.listing import Listing, Selection
from stoker.core.lifecycle import State

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

# Modules that cost more than a tenth of the start of Python each.
COSTLY = ["msgspec", "argparse", "typing", "re", "json", "datetime", "rich", "asyncio"]
DONE = "job 1 is done: it ended with exit 0\n"
SCRIPT = f"""
import sys
before = set(sys.modules)
from stoker.cli.main import main
assert main(sys.argv[1:]) == 0
print(*sorted(set({COSTLY}) & (set(sys.modules) - before)), file=sys.stderr)
"""


@pytest.mark.parametrize("line", ["why 1", "log 1", "log -n 5 @", "ls", "ls -a -s done", "ls 1"])
def test_a_verb_imports_nothing_that_costs_more_than_its_answer(queue: Queue, line: str) -> None:
    queue.add("echo said")
    queue.ok("wait")
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, *line.split()],
        env=queue.stoker.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "echo said" in ended.stdout or ended.stdout in ("said\n", DONE)
    assert (ended.returncode, ended.stderr) == (0, "\n")


def test_a_listing_has_the_facts_of_the_client(queue: Queue) -> None:
    queue.add("-N", "name", "-P", "vision", "true")
    queue.add("false")
    queue("wait")
    queue.add("--idle", "1h", "sleep 60")
    queue.until_running(3)
    home = str(queue.home)
    with Client(home) as client, Listing(home) as listing:
        jobs, status = list(client.jobs(Selection())), client.status()
        for job, light in zip(jobs, listing.jobs(Selection()), strict=True):
            plain = msgspec.structs.asdict(job)
            assert {name: getattr(light, name) for name in plain} == plain
        assert [job.id for job in listing.ls(Selection(states=[State.FAILED])).jobs] == [2]
        assert listing.ls(limit=1).next is not None
        told = listing.status()
    assert (told.counts, told.queue_paused) == (status.counts, status.queue_paused)
    assert told.projects_paused == status.projects_paused
