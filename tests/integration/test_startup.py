"""What the verbs that people type all day import: each module delays their answer."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from stoker.client.client import Client
from stoker.client.light_client import LightClient, Selection
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


SAID = {"log": "said\n", "why": DONE, "status": "1 done", "wait": "", "rm": "removed job 1\n"}
LINES = [
    "why 1",
    "log 1",
    "log -n 5 @",
    "ls",
    "ls -a -s done",
    "ls 1",
    "show 1",
    "status",
    "wait 1",
    "rm 1",
]


@pytest.mark.parametrize("line", LINES)
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
    assert SAID.get(line.split()[0], "echo said") in ended.stdout
    assert (ended.returncode, ended.stderr) == (0, "\n")


def test_a_light_client_has_the_facts_of_the_client(queue: Queue) -> None:
    queue.add("-N", "name", "-P", "vision", "--retries", "1", "false")
    queue.add("--after-any", "1", "--cpus", "1", "echo", b"a \xff", "two words")
    queue("wait")
    queue.add("--idle", "1h", "sleep 60")
    queue.until_running(3)
    home, ended = str(queue.home), Selection(ids="1,2")
    with Client(home) as client, LightClient(home) as light:
        assert [_plain(job) for job in light.jobs(Selection())] == _facts([*client.jobs()])
        assert [job.id for job in light.ls(Selection(states=[State.FAILED])).jobs] == [1]
        assert light.ls(limit=1).next is not None
        for number in ("1", "2"):
            assert _plain(light.show(number)) == _facts(client.show(number))
        assert _plain([*light.wait(ended)]) == _facts([*client.wait(ended)])
        assert _plain(light.status()) == _facts(client.status())


def test_show_prints_a_command_as_one_would_type_it(queue: Queue) -> None:
    queue.add("-g", "0", "echo", b"a \xff", "two words", "", "--lr=0.1")

    assert "command  echo 'a \ufffd' 'two words' '' --lr=0.1\n" in re.sub(
        r"(?m)^command  +", "command  ", queue.ok("show", "1")
    )


def _facts(answer: object) -> object:
    return msgspec.json.decode(msgspec.json.encode(answer))


def _plain(answer: Any) -> Any:
    """What the daemon answered, without the classes that the light client wraps it in."""
    if isinstance(answer, list):
        return [_plain(each) for each in answer]
    if isinstance(answer, dict):
        return {msgspec.to_builtins(name): _plain(each) for name, each in answer.items()}
    fields = getattr(answer, "__dict__", None)
    return (
        msgspec.to_builtins(answer)
        if isinstance(answer, State) or fields is None
        else _plain(fields)
    )
