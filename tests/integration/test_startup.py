"""What the verbs that people type all day import: each module delays their answer."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

# Modules that cost more than a tenth of the start of Python each.
COSTLY = ["msgspec", "argparse", "typing", "enum", "re", "json", "collections", "datetime", "rich"]
SCRIPT = f"""
import sys
before = set(sys.modules)
from stoker.cli.main import main
assert main(sys.argv[1:]) == 0
print(*sorted(set({COSTLY}) & (set(sys.modules) - before)), file=sys.stderr)
"""


@pytest.mark.parametrize("line", ["why 1", "log 1", "log -n 5 @"])
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
    assert "said" in ended.stdout or "is done" in ended.stdout
    assert (ended.returncode, ended.stderr) == (0, "\n")
