"""`stoker demo`: ends as it says, and says so only then."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from page_client import PageClient, ask

if TYPE_CHECKING:
    from conftest import Stoker
    from integration.daemon_fixture import Queue


def test_the_demo_succeeds_with_its_one_planned_failure(stoker: Stoker) -> None:
    ended = stoker.end(stoker.start("demo"), timeout_s=60)

    assert ended.code == 0
    assert "15 done, 1 failed" in ended.err
    assert ended.err.count("exit 1") == 1
    assert "All as it should be: run 6 fails on purpose" in ended.out
    command, argument = ended.out.splitlines()[-1].removeprefix("Next: ").split()[:2]
    assert (Path(shutil.which(command) or stoker.work / command).name, argument) == (
        "stoker",
        "run",
    )


def test_on_a_terminal_the_logs_that_the_demo_names_stay(
    idle_queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(idle_queue.stoker.env, "TMPDIR", str(idle_queue.work))

    shown = idle_queue.shown("demo", columns=300)

    named = re.search(r"log: (\S+)", shown)
    assert named is not None, shown
    assert "loss is nan at step 4" in Path(named[1]).read_text()


def test_the_demo_fails_if_another_run_fails(stoker: Stoker) -> None:
    broken = {"PYTHONPATH": str(stoker.work)}
    (stoker.work / "sitecustomize.py").write_text(
        "import sys\nif 'stoker.testing.train' in sys.orig_argv: sys.exit(9)\n"
    )

    ended = stoker.end(stoker.start("demo", env=broken), timeout_s=60)

    assert ended.code == 1
    assert ended.err.endswith("stoker: the demo did not end as it should: see above\n")
    assert "All as it should be" not in ended.out


def test_a_demo_without_gpus_is_refused(stoker: Stoker) -> None:
    ended = stoker.end(stoker.start("demo", "--gpus", "0"))

    assert (ended.code, ended.err) == (2, "stoker: --gpus 0: a demo needs at least 1\n")


def test_the_demo_page_is_served_until_it_is_stopped(stoker: Stoker) -> None:
    process = stoker.start("demo", "--web", "--gpus", "2")
    assert process.stdout is not None
    lines = iter(process.stdout.readline, b"")
    link = next(line for line in lines if line.startswith(b"http://")).decode()
    assert next(line for line in lines if b"Ctrl-C" in line)
    url, _, token = link.strip().partition("/#token=")
    port = int(url.rpartition(":")[2])
    with PageClient(port) as tab:
        tab.sign_in(token)
        tab.send_message(type="watch", id=1, path="/v1/status")
        tab.receive_until(lambda message: message["body"]["counts"].get("running", 0) == 2)
    process.send_signal(signal.SIGINT)
    assert stoker.end(process).code == 0
    with pytest.raises(ConnectionRefusedError):
        ask(port)
